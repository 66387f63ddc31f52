"""The task with which tests check that a worker is running."""

from sidekiq_celery import shared_task

__all__ = ("ping",)


@shared_task(name="celery.ping")
def ping() -> str:
    """Return `pong`."""
    return "pong"
