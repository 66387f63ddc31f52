"""
Jobs for tasks that are not registered in this worker.

Such a job fails immediately with `NotRegistered`, as in Celery, and goes to the dead set. In a worker that also serves
other queues (`sidekiq-py worker`), a job that Ruby has enqueued is not a task, and Sidekiq's rules apply to it.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import NotRegistered
from sidekiq_py.extension import JobDefinition
from sidekiq_py.payloads import escaped

_MOST_NAMES = 256


class UnknownTask:
    """A placeholder for a task that is not registered; it is never run."""

    name: str

    def not_registered(self) -> NotRegistered:
        """The error with which its jobs fail."""
        error = NotRegistered(self.name)
        # As in Celery, programs expect the name in the error. The log and Ruby's Web UI show the note.
        error.add_note(
            f"this worker has no task named {escaped(self.name)}: add its module to imports or include, or pass it "
            "with -I, then retry the job from the dead set"
        )
        return error


def unknown_tasks(
    app: App, define: Callable[[Any], JobDefinition], *, claims_all: bool
) -> Callable[[str], JobDefinition | None]:
    """
    Create the function that finds a job definition for an undeclared class.

    Args:
        define: Creates a definition for a task.
        claims_all: True to handle jobs that were not enqueued by a Celery program as well.
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
            # For Active Job's wrapper, use the class that it wraps.
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
