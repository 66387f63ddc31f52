"""`AsyncResult`: one task's result."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, Generic

from sidekiq_celery import states
from sidekiq_celery._result.base import assert_will_not_block, making_promise, new_promise, result_from_tuple
from sidekiq_celery._result.tree import Tree
from sidekiq_celery._state import app_or_default
from sidekiq_celery._type_variables import R_co
from sidekiq_celery.exceptions import TimeoutError

# What a subclass may override to read its result in another way.
_READING = ("_get_task_meta", "maybe_throw", "state", "ready", "successful", "failed")


def _stored(name: str, doc: str) -> Any:
    """Create a property that returns the stored value *name* of the task."""
    return property(lambda result: result._get_task_meta().get(name), doc=doc)


class AsyncResult(Tree, Generic[R_co]):
    """
    The result of one task, wherever the task runs. It can be shared by threads, and awaited.

    Args:
        id: The task's id.
        backend: The backend that stores the result, if it is not the app's.
        task_name: No longer used.
        parent: The result of the previous step.

    Raises:
        ValueError: *id* is None.
    """

    app: Any = None
    id: str = None  # type: ignore[assignment]
    backend: Any = None
    ignored: Any = False
    """True if the task stores no result: `get` returns None immediately."""
    TimeoutError = TimeoutError

    _cache: Any = None
    _on_ready: Any = None
    _is_gone = False

    def __init__(
        self, id: str, backend: Any = None, task_name: str | None = None, app: Any = None, parent: Any = None
    ) -> None:
        if id is None:
            raise ValueError(f"AsyncResult requires valid id, not {type(id)}")
        self.app = app_or_default(app or self.app)
        self.id = id
        self.backend = backend or self.app.backend
        self.parent = parent

    # Identity

    def as_tuple(self) -> Any:
        """`((id, parent), None)`; see `result_from_tuple`."""
        return (self.id, self.parent and self.parent.as_tuple()), None

    def as_list(self) -> list[str]:
        """The ids of this task and the steps before it."""
        return [self.id, *(self.parent.as_list() if self.parent is not None else ())]

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id}>"

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, AsyncResult):
            return other.id == self.id
        return other == self.id if isinstance(other, str) else NotImplemented

    def __copy__(self) -> Any:
        return type(self)(self.id, self.backend, None, self.app, self.parent)

    def __reduce__(self) -> Any:
        return type(self), self.__reduce_args__()

    def __reduce_args__(self) -> tuple[Any, ...]:
        return self.id, self.backend, None, None, self.parent

    # Waiting

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        callback: Callable[[str, Any], Any] | None = None,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        disable_sync_subtasks: bool = True,
        EXCEPTION_STATES: Any = states.EXCEPTION_STATES,
        PROPAGATE_STATES: Any = states.PROPAGATE_STATES,
    ) -> R_co:
        """
        Wait until the task has ended, and return its value.

        Args:
            timeout: Seconds to wait; None to wait forever, 0 not to wait.
            propagate: True to raise the task's error; False to return it.
            interval: Seconds between polls, if the backend has to poll, and between calls of *on_interval*.
            follow_parents: True to raise the error of an earlier step.
            callback: Called with the id and the value.
            on_message: Called with the stored data at each change of state.
            disable_sync_subtasks: False to allow waiting within a task.

        Raises:
            TimeoutError: The task did not end in time; it continues to run.
            RuntimeError: A task is running here.
        """
        if self.ignored:
            return None  # type: ignore[return-value]
        if disable_sync_subtasks:
            assert_will_not_block()
        follows = follow_parents and propagate and self.parent
        if follows:
            self._maybe_reraise_parent_error()
        if self._cache:
            if propagate:
                self.maybe_throw(callback=callback)
            return self.result  # type: ignore[no-any-return]
        if self._is_gone:
            return self.maybe_throw(propagate, callback)  # type: ignore[no-any-return]

        def at_interval() -> None:
            if follows:
                self._maybe_reraise_parent_error()
            if on_interval:
                on_interval()

        try:
            return self.backend.wait_for_pending(  # type: ignore[no-any-return]
                self,
                timeout=timeout,
                interval=interval,
                on_interval=at_interval if follows or on_interval else None,
                no_ack=no_ack,
                propagate=propagate,
                callback=callback,
                on_message=on_message,
            )
        except TimeoutError:
            raise
        except Exception:
            if follows:
                # An earlier step's error says more than its consequence; both may have been written at the same time.
                self._maybe_reraise_parent_error()
            raise

    wait = get

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> R_co:
        """
        Like `get`, for asyncio: it does not block the event loop. It is allowed within a task, because no thread waits.

        Raises:
            TimeoutError: The task did not end in time; it continues to run.
        """
        if self.ignored:
            return None  # type: ignore[return-value]
        if not self._cache:
            if self._is_gone:
                return await asyncio.to_thread(self.maybe_throw, propagate)
            self._maybe_set_cache(await self.backend.wait_for_async(self.id, timeout=timeout))
        return self.maybe_throw(propagate=propagate)  # type: ignore[no-any-return]

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.aget().__await__()

    def then(self, callback: Any, on_error: Any = None, weak: bool = False) -> Any:
        """Call *callback* with this result when the task has ended. Returns a promise."""
        promised = self.on_ready.then(callback, on_error)
        if not self._cache:
            self.backend.add_pending_result(self, weak=weak)
        return promised

    @property
    def on_ready(self) -> Any:
        """A promise that is fulfilled once this process knows that the task has ended."""
        if self._on_ready is None:
            made = new_promise()
            with making_promise:
                self._on_ready = self._on_ready or made
            if self._cache:
                self._on_ready(self)
        return self._on_ready

    @on_ready.setter
    def on_ready(self, promise: Any) -> None:
        self._on_ready = promise

    def throw(self, *args: Any, **kwargs: Any) -> None:
        """Fail the promise, and raise."""
        self.on_ready.throw(*args, **kwargs)

    def maybe_throw(self, propagate: bool = True, callback: Callable[[str, Any], Any] | None = None) -> Any:
        """Return the value, or raise it if the task failed and *propagate* is true."""
        meta = self._get_task_meta() if self._cache is None else self._cache
        value = meta["result"]
        if propagate and meta["status"] in states.PROPAGATE_STATES:
            if not self.on_ready.ready:
                # Another thread may have read it, and not called those that wait for it yet.
                self.on_ready(self)
            self.throw(value)
        if callback is not None:
            callback(self.id, value)
        return value

    maybe_reraise = maybe_throw

    def _maybe_reraise_parent_error(self) -> None:
        parents = list(self._parents())
        unfinished = read_together(parents)
        for node in reversed(parents):
            if node.id not in unfinished:
                node.maybe_throw()

    def _read_together(self, results: Iterable[Any]) -> None:
        read_together(results)

    def _parents(self) -> Iterator[Any]:
        node = self.parent
        while node:
            yield node
            node = node.parent

    # Outcome

    def ready(self) -> bool:
        """True if the task has ended."""
        return self.state in self.backend.READY_STATES

    def successful(self) -> bool:
        """True if the task has succeeded."""
        return bool(self.state == states.SUCCESS)

    def failed(self) -> bool:
        """True if the task has failed."""
        return bool(self.state == states.FAILURE)

    def exists(self) -> bool:
        """True if something is stored for the task; nothing is for a waiting task or an unknown id."""
        return bool(self.backend.task_result_exists(self.id))

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, FAILURE, SUCCESS, REVOKED, or a custom state."""
        return self._get_task_meta()["status"]  # type: ignore[no-any-return]

    status = state

    @property
    def result(self) -> Any:
        """The task's return value, or the exception it raised; for a custom state, its *meta*."""
        return self._get_task_meta()["result"]

    info = result

    traceback = _stored("traceback", "The traceback of a failed task, as text.")
    children = _stored("children", "The results of the tasks that this one has called.")

    @property
    def date_done(self) -> Any:
        """When the task ended."""
        when = self._get_task_meta().get("date_done")
        return datetime.fromisoformat(when) if isinstance(when, str) and when else when

    name = _stored("name", "The task's name; this and the next ones only with `result_extended`.")
    args = _stored("args", "The positional arguments of the call.")
    kwargs = _stored("kwargs", "The keyword arguments of the call.")
    worker = _stored("worker", "The worker that ran it.")
    retries = _stored("retries", "How often it was retried.")
    queue = _stored("queue", "The queue it came from.")

    @property
    def task_id(self) -> str:
        """The id."""
        return self.id

    @task_id.setter
    def task_id(self, id: str) -> None:
        self.id = id

    @property
    def supports_native_join(self) -> Any:
        """True if the backend can read many results at once."""
        return self.backend.supports_native_join

    def _get_task_meta(self) -> Any:
        return self._maybe_set_cache(self.backend.get_task_meta(self.id)) if self._cache is None else self._cache

    def _iter_meta(self, **kwargs: Any) -> Iterator[Any]:
        return iter([self._get_task_meta()])

    def _maybe_set_cache(self, meta: Any) -> Any:
        if not meta or meta["status"] not in states.READY_STATES:
            return meta
        kept = self._set_cache(self.backend.meta_from_decoded(meta))
        if self._on_ready is not None:
            self._on_ready(self)
        return kept

    def _set_cache(self, d: Any) -> Any:
        children = d.get("children")
        if children:
            d["children"] = [result_from_tuple(child, self.app) for child in children]
        self._cache = d
        return d

    # Actions

    def forget(self) -> None:
        """
        Remove this result and those of earlier steps.

        If this object knew the result, its `get` no longer waits: it returns what is stored then, or else None.
        """
        _let_go(self)
        self.backend.forget(self.id)

    def revoke(
        self,
        connection: Any = None,
        terminate: bool = False,
        signal: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """
        Revoke the task, so that it does not run.

        Args:
            terminate: True to also end a running task, with *signal*.
            wait: True to wait for the workers' replies, for *timeout* seconds.
        """
        self.app.control.revoke(
            self.id, connection=connection, terminate=terminate, signal=signal, reply=wait, timeout=timeout
        )

    def revoke_by_stamped_headers(
        self,
        headers: Any,
        connection: Any = None,
        terminate: bool = False,
        signal: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Revoke all tasks whose stamps match *headers*."""
        self.app.control.revoke_by_stamped_headers(
            headers, connection=connection, terminate=terminate, signal=signal, reply=wait, timeout=timeout
        )


def read_together(results: Iterable[Any]) -> set[str]:
    """
    Read results that are not known yet in one round trip. Those that have to be read one by one are left alone.

    Returns:
        The ids of those that have not ended.
    """
    unknown = [result for result in results if _is_plain(result) and not result._cache]
    if len(unknown) < 2:
        return set()
    backend = unknown[0].backend
    # Only reading one result is retried for `result_backend_always_retry`.
    if not backend.supports_native_join or backend.always_retry:
        return set()
    if any(result.backend is not backend for result in unknown):
        return set()
    by_id = {result.id: result for result in unknown}
    for task_id, meta in backend.get_many(list(by_id), max_iterations=1):
        by_id.pop(task_id)._maybe_set_cache(meta)
    return set(by_id)


_FORGET = AsyncResult.forget


def forget_together(results: Iterable[Any]) -> None:
    """Remove results, neighbours together. Those whose class or backend has its own way are removed one by one."""
    for forget_many, some in groupby(results, _forget_many_of):
        members = list(some)
        for result in members:
            if forget_many is None:
                result.forget()
            else:
                _let_go(result)
        if forget_many is not None:
            forget_many([result.id for result in members])


def _let_go(result: Any) -> None:
    result._is_gone = result._is_gone or result._cache is not None
    result._cache = None
    if result.parent:
        result.parent.forget()
    result.backend.remove_pending_result(result)


def _forget_many_of(result: Any) -> Callable[[list[str]], None] | None:
    # Replaced, it may be by a test, whose mock of a backend has every method. A bound method equals another one of the
    # same backend.
    is_plain = getattr(getattr(result, "forget", None), "__func__", None) is _FORGET
    return result.backend.forget_many if is_plain and hasattr(type(result.backend), "forget_many") else None


def _is_plain(result: Any) -> bool:
    """Whether a result can be read together with others: nothing is overridden, and its id is a string."""
    kind = type(result)
    own = isinstance(result, AsyncResult) and type(result.id) is str
    return own and all(getattr(kind, name) is getattr(AsyncResult, name) for name in _READING)
