"""`EagerResult`: the result of a task that ran in the caller's process."""

from collections.abc import Callable
from typing import Any

from sidekiq_celery import states
from sidekiq_celery._result.base import assert_will_not_block
from sidekiq_celery._result.single import AsyncResult
from sidekiq_celery._type_variables import R_co
from sidekiq_celery.exceptions import TaskRevokedError


class EagerResult(AsyncResult[R_co]):
    """
    The result of a task that has already run. It is not stored in a backend.

    Args:
        id: The task's id.
        ret_value: The task's return value, or the exception it raised.
        state, traceback, name: The task's state, traceback and name.
    """

    def __init__(self, id: str, ret_value: Any, state: str, traceback: Any = None, name: str | None = None) -> None:
        self.id = id
        self._result = ret_value
        self._state = state
        self._traceback = traceback
        self._name = name

    @property
    def _cache(self) -> Any:
        return {
            "task_id": self.id,
            "result": self._result,
            "status": self._state,
            "traceback": self._traceback,
            "name": self._name,
        }

    def then(self, callback: Any, on_error: Any = None, weak: bool = False) -> Any:
        """Call *callback* now."""
        return self.on_ready.then(callback, on_error)

    def get(  # type: ignore[override]
        self,
        timeout: float | None = None,
        propagate: bool = True,
        disable_sync_subtasks: bool = True,
        callback: Callable[[str, Any], Any] | None = None,
        **kwargs: Any,
    ) -> R_co:
        """
        The task's return value.

        Raises:
            RuntimeError: A task is running here, and *disable_sync_subtasks* is true.
        """
        if disable_sync_subtasks:
            assert_will_not_block()
        value: R_co = self._value(propagate)
        return value

    wait = get  # type: ignore[assignment]

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> R_co:
        """Like `get`, for asyncio."""
        value: R_co = self._value(propagate)
        return value

    def _value(self, propagate: bool) -> Any:
        if self._state == states.SUCCESS:
            return self._result
        if self._state not in states.PROPAGATE_STATES:
            return None
        if propagate:
            raise self._result if isinstance(self._result, Exception) else Exception(self._result)
        return self._result

    def ready(self) -> bool:
        """Always True: the task has ended."""
        return True

    def forget(self) -> None:
        """Do nothing: there is no stored result to remove."""

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Mark the task as revoked, although it has ended: `get` raises TaskRevokedError from now on."""
        self._state = states.REVOKED
        self._result = TaskRevokedError("revoked")
        self._traceback = None

    def __copy__(self) -> Any:
        return type(self)(*self.__reduce_args__())

    def __reduce_args__(self) -> tuple[Any, ...]:
        return self.id, self._result, self._state, self._traceback, self._name

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    @property
    def supports_native_join(self) -> Any:
        """Always False: the result is not in a backend."""
        return False
