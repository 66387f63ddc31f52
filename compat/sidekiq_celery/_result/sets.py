"""`ResultSet`: several results."""

import asyncio
import builtins
import time
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from types import GenericAlias
from typing import Any

from sidekiq_celery import _state, states
from sidekiq_celery._result.base import ResultBase, assert_will_not_block, making_promise, new_promise
from sidekiq_celery._result.single import forget_together, read_together
from sidekiq_celery.exceptions import ImproperlyConfigured, TimeoutError


class ResultSet(ResultBase):
    """
    An ordered list of results.

    Args:
        results: The results.
        app: Their app; by default that of the first result.
    """

    _app: Any = None
    _on_ready: Any = None
    results: Any = None

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, results: Any, app: Any = None, ready_barrier: Any = None, **kwargs: Any) -> None:
        self._app = app
        self.results = results

    # Members

    def add(self, result: Any) -> None:
        """Add a result, unless the set already contains it."""
        if result not in self.results:
            self._append(result)

    def _append(self, result: Any) -> None:
        self.results.append(result)
        if self._on_ready is not None:
            if self._on_ready.ready:
                self._on_ready = None
            else:
                self._waits_for(result)

    def remove(self, result: Any) -> None:
        """
        Remove a result, given itself or its id.

        Raises:
            KeyError: The set does not contain it.
        """
        member = self.app.AsyncResult(result) if isinstance(result, str) else result
        try:
            self.results.remove(member)
        except ValueError:
            raise KeyError(member) from None

    def discard(self, result: Any) -> None:
        """Remove a result if the set contains it."""
        try:
            self.remove(result)
        except KeyError:
            pass

    def update(self, results: Any) -> None:
        """Add the results that the set does not contain yet."""
        given = list(results)
        try:
            known = set(self.results)
            new = [result for result in dict.fromkeys(given) if result not in known]
        except TypeError:
            # A set among them has no hash, so each is compared with all others.
            for result in given:
                self.add(result)
            return
        for result in new:
            self._append(result)

    def clear(self) -> None:
        """Remove all results; the list object stays the same."""
        self.results[:] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __eq__(self, other: object) -> Any:
        return other.results == self.results if isinstance(other, ResultSet) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: [{', '.join(result.id for result in self.results)}]>"

    # Outcome

    def successful(self) -> bool:
        """True if all tasks have succeeded."""
        return all(not waits and result.successful() for result, waits in self._read_ahead())

    def failed(self) -> bool:
        """True if any task has failed."""
        return any(not waits and result.failed() for result, waits in self._read_ahead())

    def waiting(self) -> bool:
        """True if any task has not ended."""
        return not self.ready()

    def ready(self) -> bool:
        """True if all tasks have ended."""
        return all(not waits and result.ready() for result, waits in self._read_ahead())

    def completed_count(self) -> int:
        """The number of tasks that have succeeded."""
        return sum(not waits and bool(result.successful()) for result, waits in self._read_ahead())

    def _read_ahead(self) -> Iterator[tuple[Any, bool]]:
        """
        Yield each result, and whether it is known not to have ended.

        Several are read in a round trip, ten at first and then twice as many each time: the first results often answer
        a question about all of them.
        """
        members, count = iter(self.results), 10
        while some := list(islice(members, count)):
            unfinished = read_together(some)
            yield from ((result, getattr(result, "id", None) in unfinished) for result in some)
            count = min(2 * count, 1000)

    def maybe_throw(self, callback: Any = None, propagate: bool = True) -> None:
        """Raise the error of a failed task, if there is one."""
        for result in self.results:
            result.maybe_throw(callback=callback, propagate=propagate)

    maybe_reraise = maybe_throw

    def forget(self) -> None:
        """Remove all results from the backend."""
        forget_together(self.results)

    def revoke(
        self,
        connection: Any = None,
        terminate: bool = False,
        signal: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Revoke the tasks; see `AsyncResult.revoke`."""
        self.app.control.revoke(
            [result.id for result in self.results],
            connection=connection,
            timeout=timeout,
            terminate=terminate,
            signal=signal,
            reply=wait,
        )

    # Waiting

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        callback: Callable[[str, Any], Any] | None = None,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        disable_sync_subtasks: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> Any:
        """
        Wait for all tasks, and return their values in order. See `AsyncResult.get`.

        Args:
            callback: Called with each id and value as they arrive. No list is returned then.
        """
        join = self.join_native if self.supports_native_join else self.join
        return join(
            timeout=timeout,
            propagate=propagate,
            interval=interval,
            callback=callback,
            no_ack=no_ack,
            on_message=on_message,
            disable_sync_subtasks=disable_sync_subtasks,
            on_interval=on_interval,
        )

    def join(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        callback: Callable[[str, Any], Any] | None = None,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        disable_sync_subtasks: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> list[Any]:
        """
        Like `get`, but waits for one result after another.

        Raises:
            ImproperlyConfigured: *on_message* was given.
        """
        if disable_sync_subtasks:
            assert_will_not_block()
        if on_message is not None:
            raise ImproperlyConfigured("Backend does not support on_message callback")
        started = time.monotonic()
        values = []
        for result, _ in self._read_ahead():
            left = None if timeout is None else max(timeout - (time.monotonic() - started), 0.0)
            value = result.get(
                timeout=left,
                propagate=propagate,
                interval=interval,
                no_ack=no_ack,
                on_interval=on_interval,
                disable_sync_subtasks=disable_sync_subtasks,
            )
            if callback:
                callback(result.id, value)
            else:
                values.append(value)
        return values

    def join_native(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        callback: Callable[[str, Any], Any] | None = None,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        disable_sync_subtasks: bool = True,
    ) -> Any:
        """Like `get`, with a single wait for all results."""
        if disable_sync_subtasks:
            assert_will_not_block()
        places: dict[str, list[int]] = {}
        for at, result in enumerate(self.results):
            places.setdefault(result.id, []).append(at)
        values: list[Any] | None = None if callback else [None] * len(self)
        for task_id, meta in self.iter_native(timeout, interval, no_ack, on_message, on_interval):
            if isinstance(meta, list):
                value = [child.get(propagate=propagate, disable_sync_subtasks=disable_sync_subtasks) for child in meta]
            else:
                value = meta["result"]
                if propagate and meta["status"] in states.PROPAGATE_STATES:
                    raise value
            if callback:
                callback(task_id, value)
            elif values is not None:
                for at in places[task_id]:
                    values[at] = value
        return values

    def iter_native(
        self,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Yield each id with its stored result as they arrive."""
        found: Iterator[tuple[Any, Any]] = self.backend.iter_native(
            self,
            timeout=timeout,
            interval=interval,
            no_ack=no_ack,
            on_message=on_message,
            on_interval=on_interval,
        )
        return found

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> list[Any]:
        """
        Like `get`, for asyncio: it does not block the event loop.

        Raises:
            TimeoutError: Not all tasks ended in time.
        """
        members = asyncio.gather(*(result.aget(propagate=propagate) for result in self.results))
        try:
            async with asyncio.timeout(timeout):
                return await members
        except builtins.TimeoutError:
            raise TimeoutError("The operation timed out.") from None

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self.aget().__await__()

    def then(self, callback: Any, on_error: Any = None, weak: bool = False) -> Any:
        """Call *callback* with this set when all tasks have ended. Returns a promise."""
        return self.on_ready.then(callback, on_error)

    @property
    def on_ready(self) -> Any:
        """A promise that is fulfilled once this process knows that all tasks have ended."""
        if self._on_ready is None:
            made = new_promise(args=(self,))
            with making_promise:
                is_first = self._on_ready is None
                if is_first:
                    self._on_ready, self._left = made, 1
            if is_first:
                for result in tuple(self.results):
                    self._waits_for(result)
                self._one_is_ready()
        return self._on_ready

    def _waits_for(self, result: Any) -> None:
        self._left += 1
        if result.on_ready.ready:
            # If its error has been raised, `then` would raise it again.
            self._one_is_ready()
        else:
            result.then(self._one_is_ready)

    def _one_is_ready(self, _: Any = None) -> None:
        self._left -= 1
        if self._left == 0 and not self._on_ready.ready:
            self._on_ready()

    def _iter_meta(self, **kwargs: Any) -> Iterator[Any]:
        ids = {result.id for result in self.results}
        return (meta for _, meta in self.backend.get_many(ids, max_iterations=1, **kwargs))

    def _failed_join_report(self) -> Iterator[Any]:
        return (
            result
            for result in self.results
            if result.backend.is_cached(result.id) and result.state in states.PROPAGATE_STATES
        )

    @property
    def supports_native_join(self) -> Any:
        """True if the backend can read many results at once."""
        return self.results[0].supports_native_join if self.results else None

    @property
    def app(self) -> Any:
        """The app of the results."""
        if self._app is None:
            self._app = self.results[0].app if self.results else _state.get_current_app()
        return self._app

    @app.setter
    def app(self, app: Any) -> None:
        self._app = app

    @property
    def backend(self) -> Any:
        """The backend that stores the results."""
        return self.app.backend if self.app else self.results[0].backend
