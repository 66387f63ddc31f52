"""Tasks that look whether they are still wanted: `AbortableTask`, and `abort()` on their results."""

from typing import Any, ParamSpec, TypeVar

from sidekiq_celery.app.task import Task
from sidekiq_celery.result import AsyncResult

__all__ = ("ABORTED", "AbortableAsyncResult", "AbortableTask")

P = ParamSpec("P")
R = TypeVar("R")

ABORTED = "ABORTED"
"""The state of a task that is to end by itself."""


class AbortableAsyncResult(AsyncResult[R]):
    """The result of an abortable task."""

    def is_aborted(self) -> bool:
        """It is to end."""
        return self.state == ABORTED

    def abort(self) -> Any:
        """Ask the task to end; it does when it next looks. One that has succeeded stays so."""
        return self.backend.store_result(self.id, result=None, state=ABORTED, traceback=None)


class AbortableTask(Task[P, R]):
    """The base of tasks that call `is_aborted` now and then, each time a look into the backend."""

    abstract = True

    def AsyncResult(self, task_id: str, **kwargs: Any) -> AbortableAsyncResult[R]:
        """The result of a call."""
        return AbortableAsyncResult(task_id, backend=self.backend, app=self.app)

    def is_aborted(self, **kwargs: Any) -> bool:
        """Whether the call, or the one named by *task_id*, is to end."""
        result = self.AsyncResult(kwargs.get("task_id") or self.request.id)
        # A subclass may have put another class in the place of `AsyncResult`.
        return isinstance(result, AbortableAsyncResult) and result.is_aborted()
