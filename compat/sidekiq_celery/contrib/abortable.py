"""Tasks that check if they should stop: `AbortableTask`, with `abort()` on their results."""

from typing import Any

from sidekiq_celery._type_variables import P, R
from sidekiq_celery.app.task import Task
from sidekiq_celery.result import AsyncResult

__all__ = ("ABORTED", "AbortableAsyncResult", "AbortableTask")

ABORTED = "ABORTED"
"""The state of a task that has been asked to stop."""


class AbortableAsyncResult(AsyncResult[R]):
    """The result of an abortable task."""

    def is_aborted(self) -> bool:
        """True if the task has been asked to stop."""
        return self.state == ABORTED

    def abort(self) -> Any:
        """Ask the task to stop; it does so at its next check. A task that has succeeded stays that way."""
        return self.backend.store_result(self.id, result=None, state=ABORTED, traceback=None)


class AbortableTask(Task[P, R]):
    """The base class of tasks that call `is_aborted` now and then. Each call reads from the backend."""

    abstract = True

    def AsyncResult(self, task_id: str, **kwargs: Any) -> AbortableAsyncResult[R]:
        """The result handle of a call."""
        return AbortableAsyncResult(task_id, backend=self.backend, app=self.app)

    def is_aborted(self, **kwargs: Any) -> bool:
        """True if this call, or the one named by *task_id*, has been asked to stop."""
        result = self.AsyncResult(kwargs.get("task_id") or self.request.id)
        # A subclass may have replaced `AsyncResult` with another class.
        return isinstance(result, AbortableAsyncResult) and result.is_aborted()
