"""A pipe through which a thread or a signal wakes another thread."""

import os
import weakref


def wake_pipe(owner: object) -> tuple[int, int]:
    """
    Return the read end and the write end of a new pipe, both non-blocking.

    They are closed when *owner* is garbage-collected: a long-running program may start and stop many embedded workers.
    """
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    weakref.finalize(owner, _close, *ends).atexit = False
    return ends


def _close(*ends: int) -> None:
    for fd in ends:
        os.close(fd)
