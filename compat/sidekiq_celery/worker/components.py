"""
The parts of a worker, as names for bootsteps that require them.

A program's own steps start once the worker's processes are running, so whatever they require exists by then.
"""

from sidekiq_celery import bootsteps

__all__ = ("Beat", "Consumer", "Hub", "Pool", "StateDB", "Timer")


class Timer(bootsteps.Step):
    """Provides `worker.timer`, which calls functions at set times."""


class Hub(bootsteps.Step):
    """Provides `worker.hub`, which calls functions at set times, too. There is no event loop."""


class Pool(bootsteps.Step):
    """The processes that run tasks."""


class Beat(bootsteps.Step):
    """The beat scheduler that `-B` starts."""


class StateDB(bootsteps.Step):
    """Revokes. They are kept in Redis here."""


class Consumer(bootsteps.Step):
    """The part that fetches tasks."""
