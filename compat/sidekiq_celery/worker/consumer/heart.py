"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Heart",)


class Heart(bootsteps.StartStopStep):
    """The worker's heartbeat to monitors."""

    # There is nothing to start.
    enabled = False
