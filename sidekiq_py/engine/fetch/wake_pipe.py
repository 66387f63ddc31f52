"""A pipe by which one thread, or a signal, wakes another one."""

import os
import weakref


def wake_pipe(owner: object) -> tuple[int, int]:
    """
    The ends to read and to write, neither of which blocks.

    They are closed when *owner* is no more: a program may start and stop embedded workers for as long as it lives.
    """
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    weakref.finalize(owner, _close, *ends).atexit = False
    return ends


def _close(*ends: int) -> None:
    for fd in ends:
        os.close(fd)
