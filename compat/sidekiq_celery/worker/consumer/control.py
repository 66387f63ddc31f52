"""A name for bootsteps that require it."""

from sidekiq_celery import bootsteps

__all__ = ("Control",)


class Control(bootsteps.StartStopStep):
    """Remote control."""

    def include_if(self, parent: object) -> bool:
        """Nothing of it is to be started."""
        return False
