"""An app's tasks, by name."""

import inspect
from importlib import import_module
from typing import Any, NoReturn

from sidekiq_celery._state import get_current_app
from sidekiq_celery.app.autoretry import add_autoretry_behaviour
from sidekiq_celery.exceptions import InvalidTaskError, NotRegistered

__all__ = ("TaskRegistry",)


class TaskRegistry(dict[str, Any]):
    """Maps names to tasks. An unknown name raises `NotRegistered`."""

    NotRegistered = NotRegistered

    def __missing__(self, key: str) -> NoReturn:
        raise self.NotRegistered(key)

    def register(self, task: Any) -> None:
        """
        Add a task. A class is instantiated first.

        Raises:
            InvalidTaskError: The task has no name.
        """
        if task.name is None:
            raise InvalidTaskError(f"Task class {type(task).__name__!r} must specify .name attribute")
        instance: Any = task() if inspect.isclass(task) else task
        add_autoretry_behaviour(instance)
        self[instance.name] = instance

    def unregister(self, name: Any) -> None:
        """
        Remove a task, given the task or its name.

        Raises:
            NotRegistered: There is no such task.
        """
        known_as = getattr(name, "name", name)
        if known_as not in self:
            raise self.NotRegistered(name)
        del self[known_as]

    def regular(self) -> dict[str, Any]:
        """The tasks that are not periodic."""
        return self.filter_types("regular")

    def periodic(self) -> dict[str, Any]:
        """The periodic tasks."""
        return self.filter_types("periodic")

    def filter_types(self, type: str) -> dict[str, Any]:
        """The tasks of one type."""
        return {name: task for name, task in self.items() if getattr(task, "type", "regular") == type}


def _unpickle_task(name: str) -> Any:
    return get_current_app().tasks[name]


def _unpickle_task_v2(name: str, module: str | None = None) -> Any:
    if module:
        import_module(module)
    return get_current_app().tasks[name]
