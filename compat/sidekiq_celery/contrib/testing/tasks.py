"""The task by which `start_worker` sees that a worker works."""

from sidekiq_celery import shared_task

__all__ = ("PING", "ping", "pong")

PING = "celery.ping"


def pong() -> str:
    """Say `pong`."""
    return "pong"


ping = shared_task(name=PING)(pong)
