"""
Jobs of tasks that nobody has registered here.

A job that a Celery program has enqueued fails at once with `NotRegistered`, as in Celery, and is kept in the dead set;
one that Ruby has enqueued is none of ours, and goes by Sidekiq's rules.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sidekiq_celery import signals
from sidekiq_celery.exceptions import NotRegistered
from sidekiq_celery.payload import KEY
from sidekiq_py.registry import JobDefinition

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("unknown_tasks",)

_MOST_NAMES = 256


def unknown_tasks(app: "Celery", define: Callable[[Any], JobDefinition]) -> Callable[[str], JobDefinition | None]:
    """
    Finds a job for a class that nobody declares.

    Args:
        define: Makes a definition of a task.
    """

    @lru_cache(maxsize=_MOST_NAMES)
    def find(class_name: str) -> JobDefinition:
        unknown = define(_unknown(app, class_name))
        asked = JobDefinition(class_name, {}, class_name)
        asked.resolve = lambda payload: unknown if KEY in payload else None
        return asked

    return find


def _unknown(app: "Celery", class_name: str) -> Any:
    """A task that fails."""

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        error = NotRegistered(class_name)
        signals.task_unknown.send(sender=None, message=self.request, exc=error, name=class_name, id=self.request.id)
        raise error

    attributes = {"name": class_name, "run": run, "typing": False, "__module__": __name__}
    task = type("UnknownTask", (app.Task,), attributes)()
    task.bind(app)
    return task
