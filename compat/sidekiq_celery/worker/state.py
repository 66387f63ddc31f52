"""
Stands in for the module in which Celery's workers keep state in memory.

Here that state is spread over several processes and Redis. Revoked ids are read from there. For any other name that a
program may look up, the error says where to ask instead.
"""

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any, NoReturn

from sidekiq_celery._admission import revokes
from sidekiq_celery._state import get_current_app
from sidekiq_celery.worker.monitoring import SOFTWARE_INFO

__all__ = ("SOFTWARE_INFO", "revoked", "should_stop", "should_terminate", "total_count")


class Revoked(MutableSet[str]):
    """
    The ids of the current app's revoked tasks, read from Redis each time, in any process.

    Iterating over it and its length cover 10,000 ids.
    """

    def __contains__(self, task_id: object) -> bool:
        return revokes.is_revoked(get_current_app(), str(task_id))

    def __iter__(self) -> Iterator[str]:
        return iter(revokes.revoked_ids(get_current_app()))

    def __len__(self) -> int:
        return len(revokes.revoked_ids(get_current_app()))

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        """The result of `&`, `|`, `-` and `^`."""
        return set(it)

    def add(self, value: str) -> None:
        """Revoke a task."""
        revokes.revoke(get_current_app(), value, waits=False)

    def update(self, *values: Iterable[str]) -> None:
        """Revoke several tasks."""
        revokes.revoke(get_current_app(), [task_id for ids in values for task_id in ids], waits=False)

    def discard(self, value: str) -> None:
        """Take a revoke back."""
        revokes.allow(get_current_app(), value)


revoked = Revoked()

should_stop: Any = None
"""Read-only: stop a worker with a signal, or with `app.control.shutdown()`."""
should_terminate: Any = None
"""Read-only, as `should_stop`."""

_ELSEWHERE = {
    "active_requests": "app.control.inspect().active()",
    "reserved_requests": "app.control.inspect().reserved()",
    "scheduled_requests": "app.control.inspect().scheduled()",
    "requests": "app.control.inspect().query_task(id)",
    "total_count": "app.control.inspect().stats()",
    "all_total_count": "app.control.inspect().stats()",
}


class _Elsewhere:
    """A name that editors import into programs that have no use for it. Using it is an error that says where to ask."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: object) -> NoReturn:
        raise _error(self._name)

    __bool__ = __contains__ = __getattr__ = __getitem__ = __iter__ = __len__ = __reduce_ex__ = __setitem__ = _refuse


def _error(name: str) -> AttributeError:
    where = f"; use {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    return AttributeError(f"sidekiq_celery's workers do not keep {name} in memory{where}")


requests: Any = _Elsewhere("requests")
total_count: Any = _Elsewhere("total_count")


def __getattr__(name: str) -> Any:
    raise _error(name)
