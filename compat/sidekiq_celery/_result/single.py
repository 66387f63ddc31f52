"""`AsyncResult`: one task's result."""

from collections.abc import Callable, Generator, Iterator
from datetime import datetime
from typing import Any, Generic, TypeVar

from sidekiq_celery import states
from sidekiq_celery._result.base import assert_will_not_block, new_promise, result_from_tuple
from sidekiq_celery._result.tree import Tree
from sidekiq_celery._state import app_or_default
from sidekiq_celery.exceptions import TimeoutError

__all__ = ("AsyncResult",)

R = TypeVar("R")


def _stored(name: str, doc: str) -> Any:
    """A property: what is stored of the task under *name*."""
    return property(lambda result: result._get_task_meta().get(name), doc=doc)


class AsyncResult(Tree, Generic[R]):
    """
    One task's result, wherever the task runs. May be used by many threads, and awaited.

    Args:
        id: Of the task.
        backend: Where the result is, if not where the app's are.
        task_name: Not used any more.
        parent: The result of the step before.

    Raises:
        ValueError: *id* is None.
    """

    app: Any = None
    id: str = None  # type: ignore[assignment]
    backend: Any = None
    ignored: Any = False
    """The task stores no result: `get` returns None at once."""
    TimeoutError = TimeoutError

    _cache: Any = None
    _on_ready: Any = None

    def __init__(
        self, id: str, backend: Any = None, task_name: str | None = None, app: Any = None, parent: Any = None
    ) -> None:
        if id is None:
            raise ValueError(f"AsyncResult requires valid id, not {type(id)}")
        self.app = app_or_default(app or self.app)
        self.id = id
        self.backend = backend or self.app.backend
        self.parent = parent

    # What it is

    def as_tuple(self) -> Any:
        """`((id, parent), None)`; see `result_from_tuple`."""
        return (self.id, self.parent and self.parent.as_tuple()), None

    def as_list(self) -> list[str]:
        """The ids of this task and of the steps before it."""
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
    ) -> R:
        """
        Wait until the task has ended, and return what it returned.

        Args:
            timeout: Seconds; None to wait for ever, 0 not to wait.
            propagate: Raise what the task raised; else it is returned.
            interval: Seconds between two looks, where the backend has to look; and between calls of *on_interval*.
            follow_parents: Raise what a step before has raised.
            callback: Called with the id and the value.
            on_message: Called with all that is stored, at each change of state.
            disable_sync_subtasks: False allows it within a task.

        Raises:
            TimeoutError: The task had not ended in time; it goes on.
            RuntimeError: A task runs here.
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
        checks = [check for check in (self._maybe_reraise_parent_error if follows else None, on_interval) if check]

        def at_interval() -> None:
            for check in checks:
                check()

        def wait() -> Any:
            return self.backend.wait_for_pending(
                self,
                timeout=timeout,
                interval=interval,
                on_interval=at_interval if checks else None,
                no_ack=no_ack,
                propagate=propagate,
                callback=callback,
                on_message=on_message,
            )

        try:
            return wait()  # type: ignore[no-any-return]
        except TimeoutError:
            raise
        except Exception:
            if follows:
                # What a step before raised says more than what came of it; both may have been written at once.
                self._maybe_reraise_parent_error()
            raise

    wait = get

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> R:
        """
        The same for asyncio: the event loop goes on meanwhile. Also allowed within a task, as no thread waits.

        Raises:
            TimeoutError: The task had not ended in time; it goes on.
        """
        if self.ignored:
            return None  # type: ignore[return-value]
        if not self._cache:
            self._maybe_set_cache(await self.backend.wait_for_async(self.id, timeout=timeout))
        return self.maybe_throw(propagate=propagate)  # type: ignore[no-any-return]

    def __await__(self) -> Generator[Any, None, R]:
        return self.aget().__await__()

    def then(self, callback: Any, on_error: Any = None, weak: bool = False) -> Any:
        """Call *callback* with this result when the task has ended; returns a promise."""
        promised = self.on_ready.then(callback, on_error)
        if not self._cache:
            self.backend.add_pending_result(self, weak=weak)
        return promised

    @property
    def on_ready(self) -> Any:
        """A promise that is fulfilled when the end of the task has been heard of here."""
        if self._on_ready is None:
            self._on_ready = new_promise()
            if self._cache:
                self._on_ready(self)
        return self._on_ready

    @on_ready.setter
    def on_ready(self, promise: Any) -> None:
        self._on_ready = promise

    def throw(self, *args: Any, **kwargs: Any) -> None:
        """Have the promise fail, and raise."""
        self.on_ready.throw(*args, **kwargs)

    def maybe_throw(self, propagate: bool = True, callback: Callable[[str, Any], Any] | None = None) -> Any:
        """The value; raises it if the task failed and *propagate* is true."""
        meta = self._get_task_meta() if self._cache is None else self._cache
        value = meta["result"]
        if propagate and meta["status"] in states.PROPAGATE_STATES:
            self.throw(value)
        if callback is not None:
            callback(self.id, value)
        return value

    maybe_reraise = maybe_throw

    def _maybe_reraise_parent_error(self) -> None:
        parents = list(self._parents())
        unknown = [node for node in parents if _is_plain(node) and not node._cache]
        unfinished = self._ask_at_once(unknown) if len(unknown) > 1 else ()
        for node in reversed(parents):
            if node.id not in unfinished:
                node.maybe_throw()

    def _ask_at_once(self, nodes: "list[AsyncResult[Any]]") -> set[str]:
        """Read the results of *nodes* in one round trip; returns the ids of those that have not ended."""
        backend = self.backend
        if not backend.supports_native_join or any(node.backend is not backend for node in nodes):
            return set()
        by_id = {node.id: node for node in nodes}
        for task_id, meta in backend.get_many(list(by_id), max_iterations=1):
            by_id.pop(task_id)._maybe_set_cache(meta)
        return set(by_id)

    def _parents(self) -> Iterator[Any]:
        node = self.parent
        while node:
            yield node
            node = node.parent

    # What became of it

    def ready(self) -> bool:
        """The task has ended."""
        return self.state in self.backend.READY_STATES

    def successful(self) -> bool:
        """The task has returned."""
        return bool(self.state == states.SUCCESS)

    def failed(self) -> bool:
        """The task has raised."""
        return bool(self.state == states.FAILURE)

    def exists(self) -> bool:
        """Something is stored of the task; nothing is of one that waits, and of ids that nobody knows."""
        return bool(self.backend.task_result_exists(self.id))

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, FAILURE, SUCCESS, REVOKED, or the task's own."""
        return self._get_task_meta()["status"]  # type: ignore[no-any-return]

    status = state

    @property
    def result(self) -> Any:
        """What the task returned or raised; the *meta* of a state of its own."""
        return self._get_task_meta()["result"]

    info = result

    traceback = _stored("traceback", "Of a task that failed, as text.")
    children = _stored("children", "The results of the tasks that this one has called.")

    @property
    def date_done(self) -> Any:
        """When the task ended."""
        when = self._get_task_meta().get("date_done")
        return datetime.fromisoformat(when) if isinstance(when, str) and when else when

    name = _stored("name", "Of the task; this and the next ones only with `result_extended`.")
    args = _stored("args", "Of the call.")
    kwargs = _stored("kwargs", "Of the call.")
    worker = _stored("worker", "Who ran it.")
    retries = _stored("retries", "How often it was tried again.")
    queue = _stored("queue", "Where it came from.")

    @property
    def task_id(self) -> str:
        """The id."""
        return self.id

    @task_id.setter
    def task_id(self, id: str) -> None:
        self.id = id

    @property
    def supports_native_join(self) -> Any:
        """The backend reads many results at once."""
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

    # What can be done

    def forget(self) -> None:
        """Remove this result and those of the steps before."""
        self._cache = None
        if self.parent:
            self.parent.forget()
        self.backend.remove_pending_result(self)
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
        Have the task not run.

        Args:
            terminate: Also end it if it runs, by *signal*.
            wait: For the workers' answers, *timeout* seconds.
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
        """Have all tasks not run whose stamps are *headers*."""
        self.app.control.revoke_by_stamped_headers(
            headers, connection=connection, terminate=terminate, signal=signal, reply=wait, timeout=timeout
        )


def _is_plain(node: Any) -> bool:
    """Whether a result can be read together with others: nothing is overridden, and its id is a text."""
    kind = type(node)
    own = isinstance(node, AsyncResult) and type(node.id) is str
    return own and kind._get_task_meta is AsyncResult._get_task_meta and kind.maybe_throw is AsyncResult.maybe_throw
