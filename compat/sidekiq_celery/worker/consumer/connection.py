"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Connection",)


class Connection(bootsteps.StartStopStep):
    """The connections to Redis, which belong to the engine."""

    # There is nothing to start.
    enabled = False
