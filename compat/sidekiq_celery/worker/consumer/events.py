"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Events",)


class Events(bootsteps.StartStopStep):
    """Events for monitors."""

    # There is nothing to start.
    enabled = False
