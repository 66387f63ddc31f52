"""Hooks around a task's run, for classes that derive from `Task`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidekiq_celery.utils.einfo import ExceptionInfo


class TaskHooks:
    """Hooks that do nothing by default. Overrides do not have to call `super()`."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before the task runs."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called when the task has returned."""

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo") -> None:
        """Called when the task will run again."""

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo") -> None:
        """Called when the task has failed."""

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo | None"
    ) -> None:
        """Called when the task has succeeded or failed, but not when it will be retried."""
