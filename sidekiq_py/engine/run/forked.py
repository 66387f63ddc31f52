"""
What is left of a worker in a process that a job has forked.

`os.fork()` in a job gives a second process that stands in the same place of the same thread. What it was forked for is
the job's affair; when the job's function ends there, by `sys.exit()`, an exception or a return, that process ends,
too: on the engine's side of the call it would settle the job and fetch more over its parent's sockets.
"""

import os
import sys
import traceback


def leave_if_forked(pid: int, error: BaseException | None) -> None:
    """
    End this process if it is not *pid*; with the exit code that Python gives a program that ends so.

    Args:
        pid: Of the worker.
        error: How the job's function ended; None if it returned.
    """
    if os.getpid() == pid:
        return
    code = 1
    try:
        code = _exit_code(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
