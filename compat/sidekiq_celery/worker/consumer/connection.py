"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Connection",)


class Connection(bootsteps.StartStopStep):
    """The connections to Redis, which are the engine's."""

    def include_if(self, parent: object) -> bool:
        """Nothing of it is to be started."""
        return False
