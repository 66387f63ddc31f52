"""The object that stands for what consumes tasks in Celery's workers."""

from typing import Any

from sidekiq_celery import bootsteps

__all__ = ("Consumer",)


class Consumer:
    """
    What `worker_ready` is sent by, and bootsteps of `app.steps["consumer"]` belong to.

    Attributes:
        app, hostname, timer: As of the worker.
        controller: The worker.
        steps: Those bootsteps that are started and stopped.
    """

    def __init__(self, controller: Any, **kwargs: Any) -> None:
        self.controller = controller
        self.app = controller.app
        self.hostname = controller.hostname
        self.steps: list[Any] = []
        self.blueprint = bootsteps.Blueprint(self.app.steps["consumer"], name="Consumer").apply(self, **kwargs)

    @property
    def timer(self) -> Any:
        """Calls functions at their times."""
        return self.controller.timer

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a consumer has no {name!r} here: sidekiq_celery's workers fetch by the engine of sidekiq_py, without "
            "kombu's connections and consumers",
            name=name,
            obj=self,
        )
