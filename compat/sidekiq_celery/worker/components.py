"""
The parts of a worker, as names for bootsteps that require them.

Steps of a program are started when the worker's processes are at work, so whatever they require is there.
"""

from sidekiq_celery import bootsteps

__all__ = ("Beat", "Consumer", "Pool", "StateDB", "Timer")


class Timer(bootsteps.Step):
    """`worker.timer` calls functions at their times."""


class Pool(bootsteps.Step):
    """The processes that run tasks."""


class Beat(bootsteps.Step):
    """The beat of `-B`."""


class StateDB(bootsteps.Step):
    """Revokes are kept in Redis."""


class Consumer(bootsteps.Step):
    """What fetches tasks."""
