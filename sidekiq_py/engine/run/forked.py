"""
Ends a process that a job has forked when it would return into the engine.

`os.fork()` in a job gives a second process that continues at the same point of the same thread. What the job does there
is its own business. But when the job's function ends there, by `sys.exit()`, an exception or a return, that process
must end too: back in the engine, it would settle the job and fetch more over its parent's sockets.
"""

import os
import sys
import traceback
from functools import partial

# One for each fork between the start of the program and this process. Python adds it in the child; asking for the
# process ID instead is a system call, 1.5 % of a no-op job. The hook is a C function: no exception that is raised in
# this thread from outside can strike in it, and Python ignores a hook that fails.
_forks: list[None] = []
os.register_at_fork(after_in_child=partial(_forks.append, None))


def fork_count() -> int:
    """Return how many forks lie between the start of the program and this process."""
    return len(_forks)


def leave_if_forked(forks: int, error: BaseException | None) -> None:
    """
    Exit if this process was forked from the worker, with the exit code that Python would give a program that ends this
    way.

    Args:
        forks: The worker's `fork_count`.
        error: How the job's function ended; None if it returned.
    """
    if len(_forks) == forks:
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
