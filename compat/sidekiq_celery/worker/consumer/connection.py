"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Connection",)


class Connection(bootsteps.StartStopStep):
    """The connections to Redis, which are the engine's."""

    # Nothing of it is to be started.
    enabled = False
