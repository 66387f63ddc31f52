"""Waits for results that Redis announces: one thread of this process listens on behalf of all waiters."""

import asyncio
import builtins
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery.backends.listening import Deliver, Listener, listener_for
from sidekiq_celery.backends.many_keys import texts_of
from sidekiq_celery.exceptions import TimeoutError
from sidekiq_py.extension import Pool

if TYPE_CHECKING:
    from sidekiq_celery.backends.key_value import BaseKeyValueStoreBackend as _Base
else:
    _Base = object


class Awaiting(_Base):
    """The part of a Redis backend that waits for results."""

    is_async = True
    _pool: Pool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What delivers the results awaited with `then`, and their keys. Each result knows its own.
        self._awaited: dict[Deliver, bytes] = {}
        # Of those that were held weakly and are gone. Their end, at any line, must not take a lock.
        self._abandoned: deque[Deliver] = deque()
        self._awaited_lock = threading.Lock()

    @property
    def _listener(self) -> Listener:
        return listener_for(self._pool)

    def wait_for_pending(
        self,
        result: Any,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        callback: Any = None,
        propagate: bool = True,
        **kwargs: Any,
    ) -> Any:
        """
        Wait for one result; see `AsyncResult.get`.

        Raises:
            TimeoutError: The result did not arrive in time.
        """
        self._ensure_not_eager()
        for _, meta in self._arrivals([result.id], timeout, interval, on_interval, on_message):
            result._maybe_set_cache(meta)
        return result.maybe_throw(callback=callback, propagate=propagate)

    def wait_for(
        self, task_id: str, timeout: float | None = None, interval: float = 0.5, on_interval: Any = None, **kwargs: Any
    ) -> Any:
        """Wait for a task to end, and return what is stored of it."""
        return next(meta for _, meta in self._arrivals([task_id], timeout, interval, on_interval, None))

    def iter_native(
        self,
        result: Any,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the ids of a set's results, each with its stored result, or with a nested set's list of results."""
        self._ensure_not_eager()
        members: dict[str, list[Any]] = {}
        for member in result.results:
            if hasattr(member, "results"):
                yield member.id, member.results
            elif member._cache or member._is_gone:
                yield member.id, member._get_task_meta()
            else:
                members.setdefault(member.id, []).append(member)
        for task_id, meta in self._arrivals(list(members), timeout, interval, on_interval, on_message):
            for member in members[task_id]:
                member._maybe_set_cache(meta)
                yield task_id, member._cache

    def _arrivals(
        self,
        task_ids: list[str],
        timeout: float | None,
        interval: float | None,
        on_interval: Callable[[], Any] | None,
        on_message: Callable[[Any], Any] | None,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the results of *task_ids* as they arrive."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pending = {self.get_key_for_task(task_id): task_id for task_id in task_ids}
        last: dict[bytes, bytes] = {}

        def ended(key: bytes, text: bytes | None) -> Any:
            if text is None or key not in pending or last.get(key) == text:
                return None
            meta = self.decode_result(text)
            if on_message is not None:
                on_message(meta)
            if meta["status"] in states.READY_STATES:
                return meta
            last[key] = text
            return None

        known = list(pending)
        for key, text in zip(known, texts_of(self._pool, known), strict=True):
            meta = ended(key, text)
            if meta is not None:
                yield pending.pop(key), meta
        if not pending:
            return
        inbox: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
        watched = list(pending)

        def deliver(key: bytes, text: bytes) -> None:
            inbox.put((key, text))

        self._listener.watch(watched, deliver)
        try:
            while pending:
                received = _next_of(inbox, deadline, interval)
                if received is None:
                    if on_interval:
                        on_interval()
                    continue
                meta = ended(*received)
                if meta is not None:
                    yield pending.pop(received[0]), meta
        finally:
            self._listener.unwatch(watched, deliver)

    async def wait_for_async(self, task_id: str, timeout: float | None = None) -> Any:
        """
        Wait for a task to end without blocking the event loop, and return what is stored of it.

        Raises:
            TimeoutError: The result did not arrive in time.
        """
        self._ensure_not_eager()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        key = self.get_key_for_task(task_id)

        def end(meta: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(meta)
            else:
                future.set_exception(error)

        def deliver(_: bytes, text: bytes) -> None:
            meta, error = None, None
            try:
                meta = self.decode_result(text)
                if meta["status"] not in states.READY_STATES:
                    return
            except Exception as failure:  # noqa: BLE001 - raised in the coroutine that awaits it
                error = failure
            # The loop may be closed by now, and then no one is waiting.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, meta, error)

        self._listener.watch([key], deliver)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except builtins.TimeoutError:
            raise TimeoutError("The operation timed out.") from None
        finally:
            self._listener.unwatch([key], deliver)

    def add_pending_result(self, result: Any, weak: bool = False) -> Any:
        """Fulfil *result* in a thread of its own when it arrives. With *weak*, waiting does not keep it alive."""
        key = self.get_key_for_task(result.id)

        def deliver(_: bytes, text: bytes) -> None:
            meta = self.decode_result(text)
            if meta["status"] not in states.READY_STATES or not self._stop_awaiting(deliver):
                return
            waiting = hold()
            if waiting is not None:
                # Callbacks may wait for other results, which reach them through this thread, so it must not run them.
                threading.Thread(target=waiting._maybe_set_cache, args=(meta,), daemon=True).start()

        hold: Callable[[], Any] = (
            weakref.ref(result, lambda _: self._abandoned.append(deliver)) if weak else lambda: result
        )
        with suppress(IndexError):
            while True:
                self._stop_awaiting(self._abandoned.popleft())
        with self._awaited_lock:
            if getattr(result, "_deliver", None) in self._awaited:
                return result
            self._awaited[deliver] = key
            result._deliver = deliver
        self._listener.watch([key], deliver)
        return result

    def add_pending_results(self, results: Any, weak: bool = False) -> list[Any]:
        """Call `add_pending_result` for each of *results*."""
        return [self.add_pending_result(result, weak=weak) for result in results]

    def remove_pending_result(self, result: Any) -> Any:
        """Stop waiting for *result*."""
        self._stop_awaiting(getattr(result, "_deliver", None))
        return result

    def forget(self, task_id: str) -> None:
        """Remove a result. Every handle that waits for it stops waiting."""
        self._stop_expecting(task_id)
        super().forget(task_id)

    def _stop_expecting(self, task_id: str) -> Any:
        """Drop what is kept here of a result that is removed. Returns its key."""
        self._cache.pop(task_id, None)
        key = self.get_key_for_task(task_id)
        for deliver in self._listener.watching(key):
            self._stop_awaiting(deliver)
        return key

    def _stop_awaiting(self, deliver: Deliver | None) -> bool:
        with self._awaited_lock:
            key = self._awaited.pop(deliver, None) if deliver is not None else None
        if key is None or deliver is None:
            return False
        self._listener.unwatch([key], deliver)
        return True


def _next_of(inbox: "SimpleQueue[Any]", deadline: float | None, interval: float | None) -> Any:
    """Return the next arrival, or None after *interval* without one. Raises TimeoutError past the *deadline*."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise TimeoutError("The operation timed out.")
    pause = max(interval or 0, 0.01)
    try:
        return inbox.get(timeout=pause if left is None else min(pause, left))
    except Empty:
        return None
