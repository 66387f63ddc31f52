"""Waiting by looking again and again, for backends that cannot tell."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery.exceptions import ImproperlyConfigured, TimeoutError

if TYPE_CHECKING:
    from sidekiq_celery.backends.interface import Backend as _Base
else:
    _Base = object

__all__ = ("SyncBackendMixin",)


class SyncBackendMixin(_Base):
    """The waiting part of a backend; `iter_native` needs its `get_many`."""

    get_many: Any

    is_async = False

    def wait_for_pending(
        self,
        result: Any,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Any = None,
        on_interval: Callable[[], Any] | None = None,
        callback: Any = None,
        propagate: bool = True,
    ) -> Any:
        """
        Wait for one result; see `AsyncResult.get`.

        Raises:
            TimeoutError: It did not come in time.
            ImproperlyConfigured: *on_message* is given.
        """
        self._ensure_not_eager()
        if on_message is not None:
            raise ImproperlyConfigured("Backend does not support on_message callback")
        meta = self.wait_for(result.id, timeout=timeout, interval=interval, on_interval=on_interval, no_ack=no_ack)
        if not meta:
            return None
        result._maybe_set_cache(meta)
        return result.maybe_throw(propagate=propagate, callback=callback)

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> Any:
        """What is stored of a task, once it has ended."""
        self._ensure_not_eager()
        elapsed = 0.0
        while True:
            meta = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                return meta
            if on_interval:
                on_interval()
            if timeout is not None and elapsed >= timeout:
                raise TimeoutError("The operation timed out.")
            pause = interval if timeout is None else min(interval, timeout - elapsed)
            elapsed += self._pause(pause)

    async def wait_for_async(self, task_id: str, timeout: float | None = None) -> Any:
        """The same beside an event loop."""
        return await asyncio.to_thread(self.wait_for, task_id, timeout=timeout)

    def iter_native(
        self,
        result: Any,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Any = None,
        on_interval: Callable[[], Any] | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """The ids of a set's results, each with what is stored of it, or with the results of a set within the set."""
        self._ensure_not_eager()
        task_ids = set()
        for member in result.results:
            if hasattr(member, "results"):
                yield member.id, member.results
            else:
                task_ids.add(member.id)
        if not task_ids:
            return
        yield from self.get_many(
            task_ids,
            timeout=timeout,
            interval=interval,
            no_ack=no_ack,
            on_message=on_message,
            on_interval=on_interval,
        )

    def add_pending_result(self, result: Any, weak: bool = False) -> Any:
        """For `then`, which is called here only when somebody waits."""
        return result

    def remove_pending_result(self, result: Any) -> Any:
        """Nothing is kept of those who wait."""
        return result
