"""
The start and the end of a process that runs tasks: a child of `-P prefork`, or a worker with `-P solo`.

Tools replace both functions, to connect in each process and to hand in what they have gathered there: a worker looks
them up here.
"""

from typing import Any

from sidekiq_celery import signals

__all__ = ("process_destructor", "process_initializer")

_hostname: str | None = None


def process_initializer(app: Any, hostname: str | None) -> None:
    """Make the process *app*'s, and tell the program that it has started."""
    global _hostname
    app.set_default()
    app.set_current()
    app.loader.init_worker_process()
    _hostname = hostname
    signals.worker_process_init.send(sender=hostname)


def process_destructor(pid: int, exitcode: int) -> None:
    """Tell the program that the process ends."""
    signals.worker_process_shutdown.send(sender=_hostname, pid=pid, exitcode=exitcode)
