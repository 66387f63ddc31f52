"""The task by which tests see that a worker works."""

from sidekiq_celery import shared_task

__all__ = ("ping",)


@shared_task(name="celery.ping")
def ping() -> str:
    """Say `pong`."""
    return "pong"
