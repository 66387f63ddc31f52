"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Tasks",)


class Tasks(bootsteps.StartStopStep):
    """Tasks are fetched."""

    # Nothing of it is to be started.
    enabled = False
