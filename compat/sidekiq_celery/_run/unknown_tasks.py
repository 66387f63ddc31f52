"""
Jobs of tasks that nobody has registered here.

It fails at once with `NotRegistered`, as in Celery, and is kept in the dead set. In a worker that serves others' queues
as well (`sidekiq-py worker`) a job that Ruby has enqueued is none of ours, and goes by Sidekiq's rules.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import NotRegistered
from sidekiq_py.extension import JobDefinition

__all__ = ("UnknownTask", "unknown_tasks")

_MOST_NAMES = 256


class UnknownTask:
    """Stands for a task that nobody has registered; it is never run."""

    name: str

    def not_registered(self) -> NotRegistered:
        """By what it fails."""
        error = NotRegistered(self.name)
        # Programs look for the name in the error, as in Celery; the log and Ruby's page show the note.
        error.add_note(
            f"{self.name} is the name of no task here: add its module to imports or include, or name it by -I, then "
            "retry it from the dead set"
        )
        return error


def unknown_tasks(
    app: App, define: Callable[[Any], JobDefinition], *, claims_all: bool
) -> Callable[[str], JobDefinition | None]:
    """
    Finds a job for a class that nobody declares.

    Args:
        define: Makes a definition of a task.
        claims_all: Also where no Celery program has enqueued it.
    """

    @lru_cache(maxsize=_MOST_NAMES)
    def unknown(name: str) -> JobDefinition:
        return define(_unknown(app, name))

    @lru_cache(maxsize=_MOST_NAMES)
    def find(class_name: str) -> JobDefinition:
        asked = JobDefinition(class_name, {}, class_name)

        def resolve(payload: Mapping[str, Any]) -> JobDefinition | None:
            if not claims_all and KEY not in payload:
                return None
            # Active Job's wrapper stands for the class that it wraps.
            wrapped = payload.get("wrapped")
            return unknown(wrapped if type(wrapped) is str else class_name)

        asked.resolve = resolve
        return asked

    return find


def _unknown(app: App, name: str) -> Any:
    attributes = {"name": name, "typing": False, "__module__": __name__}
    task = type("UnknownTask", (UnknownTask, app.Task), attributes)()
    task.bind(app)
    return task
