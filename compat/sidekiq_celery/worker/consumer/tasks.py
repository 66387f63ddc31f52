"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Tasks",)


class Tasks(bootsteps.StartStopStep):
    """Fetching of tasks."""

    # There is nothing to start.
    enabled = False
