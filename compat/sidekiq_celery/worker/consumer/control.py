"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Control",)


class Control(bootsteps.StartStopStep):
    """Remote control."""

    # There is nothing to start.
    enabled = False
