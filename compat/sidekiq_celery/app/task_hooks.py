"""What is called around a task's run, for classes that derive from `Task`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidekiq_celery.utils.einfo import ExceptionInfo

__all__ = ("TaskHooks",)


class TaskHooks:
    """Hooks that do nothing; none of them has to call `super()`."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before it runs."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called when it has returned."""

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo") -> None:
        """Called when it is to run again."""

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo") -> None:
        """Called when it has failed."""

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: "ExceptionInfo | None"
    ) -> None:
        """Called when it has succeeded or failed; not before another try."""
