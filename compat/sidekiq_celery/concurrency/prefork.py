"""
The start and end of a process that runs tasks: a child with `-P prefork`, or the worker itself with `-P solo`.

Tools replace both functions, to connect in each process and to deliver what they have gathered there. So a worker looks
them up here.
"""

from typing import Any

from sidekiq_celery import signals
from sidekiq_celery.concurrency._pool_size import PoolSize

__all__ = ("TaskPool", "process_destructor", "process_initializer")

_hostname: str | None = None


class TaskPool(PoolSize):
    """The pool of a worker with `-P prefork`, for programs that look at its kind and size."""


def process_initializer(app: Any, hostname: str | None) -> None:
    """Make *app* the app of this process, and tell the program that the process has started."""
    global _hostname
    app.set_default()
    app.set_current()
    app.loader.init_worker_process()
    _hostname = hostname
    signals.worker_process_init.send(sender=hostname)


def process_destructor(pid: int, exitcode: int) -> None:
    """Tell the program that the process is ending."""
    signals.worker_process_shutdown.send(sender=_hostname, pid=pid, exitcode=exitcode)
