"""
Ends the copies of a worker's threads in a forked process.

A fork copies only the thread that forks. But with gevent, threads are greenlets, and a fork copies them all: the
worker's would go on in the child, where they would run jobs, and write to Redis, under the parent's name. So a thread
of a worker marks itself as `bound` to its process, and a copy of it waits forever at the next use of Redis and before
the next job. It is not ended, because no exception gets through every handler on the way.
"""

import os
import threading
from functools import partial

forks: list[None] = []
"""
One for each fork between the start of the program and this process. Python adds it in the child; asking for the process
ID instead is a system call, 1.5 % of a no-op job.
"""
# Per thread: how many forks there were when it was bound; None in the thread that forked.
_bound = threading.local()

if hasattr(os, "register_at_fork"):  # Windows has no fork
    # Both are C functions: no exception that is raised in this thread from outside can strike in them, and Python
    # ignores a hook that fails.
    os.register_at_fork(after_in_child=partial(forks.append, None))
    os.register_at_fork(after_in_child=partial(setattr, _bound, "forks", None))


def bind() -> None:
    """Bind the calling thread to this process."""
    _bound.forks = len(forks)


def is_copied() -> bool:
    """True if the calling thread is a copy of one that was bound to another process."""
    return bool(forks) and getattr(_bound, "forks", None) not in (None, len(forks))


def rest_if_copied() -> None:
    """Wait forever if the calling thread is a copy."""
    while is_copied():
        threading.Event().wait()
