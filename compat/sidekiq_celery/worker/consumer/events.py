"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Events",)


class Events(bootsteps.StartStopStep):
    """What monitors are told."""

    # Nothing of it is to be started.
    enabled = False
