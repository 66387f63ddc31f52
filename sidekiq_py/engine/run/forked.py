"""
Ends a process that a job has forked when it would return into the engine.

`os.fork()` in a job gives a second process that continues at the same point of the same thread. What the job does there
is its own business. But when the job's function ends there, by `sys.exit()`, an exception or a return, that process
must end too: back in the engine, it would settle the job and fetch more over its parent's sockets.

With gevent, a process that any greenlet has forked also has copies of jobs that others run. These must not end it, and
wait forever (`copied_threads`).
"""

import os
import sys
import traceback
from typing import NoReturn

from sidekiq_py.copied_threads import rest_if_copied


def end_fork(error: BaseException | None) -> NoReturn:
    """
    Exit from a process that was forked from the worker, with the exit code that Python would give a program that ends
    this way.

    Args:
        error: How the job's function ended; None if it returned.
    """
    rest_if_copied()
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
