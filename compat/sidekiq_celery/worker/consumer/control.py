"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Control",)


class Control(bootsteps.StartStopStep):
    """Remote control."""

    # Nothing of it is to be started.
    enabled = False
