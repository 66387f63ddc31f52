"""The counterpart of the object that consumes tasks in Celery's workers."""

from functools import cached_property
from typing import Any, NamedTuple

from sidekiq_celery import bootsteps

__all__ = ("Consumer",)


class TaskConsumer(NamedTuple):
    """
    Stands in for kombu's consumer of tasks.

    Args:
        queues: Those that the worker serves now, as kombu's queues.
    """

    queues: list[Any]


class Consumer:
    """
    The sender of `worker_ready`, the parent of the bootsteps in `app.steps["consumer"]`, and the `state.consumer` of
    remote control commands.

    Attributes:
        app, hostname, timer, hub, pool: The worker's.
        controller: The worker.
        steps: The bootsteps that are started and stopped.
    """

    def __init__(self, controller: Any, **kwargs: Any) -> None:
        self.controller = controller
        self.app = controller.app
        self.hostname = controller.hostname
        self.steps: list[Any] = []
        self.blueprint = bootsteps.Blueprint(self.app.steps["consumer"], name="Consumer")
        self.blueprint.apply(self, **kwargs)

    def __repr__(self) -> str:
        return f"<Consumer: {self.hostname} ({self.blueprint.human_state()})>"

    @property
    def timer(self) -> Any:
        """Calls functions at set times."""
        return self.controller.timer

    @property
    def hub(self) -> Any:
        """Calls functions at set times, too."""
        return self.controller.hub

    @property
    def pool(self) -> Any:
        """How many tasks run at once."""
        return self.controller.pool

    @property
    def task_consumer(self) -> TaskConsumer:
        """Tells programs which queues the worker serves."""
        return TaskConsumer(list(self.app.amqp.queues.consume_from.values()))

    @cached_property
    def connection(self) -> Any:
        """A kombu connection to the broker, for the program's bootsteps. No task comes through it."""
        return self.app.connection_for_read()

    @cached_property
    def event_dispatcher(self) -> Any:
        """Sends events of the program under the worker's name."""
        from sidekiq_celery.events.dispatcher import EventDispatcher

        return EventDispatcher(self.connection, hostname=self.hostname, app=self.app)

    def close_connection(self) -> None:
        """Close the connection if a bootstep has used it."""
        if "connection" in self.__dict__:
            self.connection.close()

    @cached_property
    def qos(self) -> Any:
        """A prefetch count that programs' commands may read and change. Nothing is prefetched, so it has no effect."""
        # Few workers need the module, which takes up almost a megabyte.
        from kombu.common import QoS

        return QoS(_ignored, self.controller.concurrency)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a consumer has no {name!r} here: sidekiq_celery's workers fetch with the engine of sidekiq_py, without "
            "kombu's connections and consumers; commands reach the worker's processes by state.remote_control",
            name=name,
            obj=self,
        )


def _ignored(prefetch_count: int) -> None:
    """Take the place of the function that tells a broker of a new prefetch count."""
