"""Waiting by repeated checks, for backends that cannot announce results."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery.exceptions import ImproperlyConfigured, TimeoutError

if TYPE_CHECKING:
    from sidekiq_celery.backends.interface import Backend as _Base
else:
    _Base = object


class SyncBackendMixin(_Base):
    """The part of a backend that waits for results. `iter_native` needs the backend's `get_many`."""

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
            TimeoutError: The result did not arrive in time.
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
        """Wait for a task to end, and return what is stored of it."""
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
        """Call `wait_for` in a thread, so that the event loop goes on."""
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
        """Yield the ids of a set's results, each with its stored result, or with a nested set's list of results."""
        self._ensure_not_eager()
        task_ids = set()
        for member in result.results:
            if hasattr(member, "results"):
                yield member.id, member.results
            elif member._is_gone:
                yield member.id, member._get_task_meta()
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
        """Do nothing: with polling, callbacks of `then` run when something waits for the result."""
        return result

    def remove_pending_result(self, result: Any) -> Any:
        """Do nothing: waiting results are not tracked."""
        return result
