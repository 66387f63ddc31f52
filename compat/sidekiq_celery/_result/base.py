"""What all results have in common, and whether it is allowed to wait for them here."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sidekiq_celery import _state
from sidekiq_celery._send.running_task import running
from sidekiq_celery._state import app_or_default

_WOULD_BLOCK = (
    "Never call result.get() within a task! It blocks a worker, and all workers may end up waiting for each other. "
    "Call the next task with a chain or a chord, await the result in an async task, or see allow_join_result()"
)


# Set by a `with` block of the program, for its thread or coroutine. Without one, it depends on where the code runs.
_says: ContextVar[bool | None] = ContextVar("sidekiq_celery.joining", default=None)


def task_join_will_block() -> bool:
    """Whether waiting for a result here would block a worker."""
    said = _says.get()
    if said is not None:
        return said
    run = running.get()
    return (run is not None and run.is_open) or _state.task_join_will_block()


def assert_will_not_block() -> None:
    """
    Check that waiting is allowed here.

    Raises:
        RuntimeError: A task is running here.
    """
    if task_join_will_block():
        raise RuntimeError(_WOULD_BLOCK)


@contextmanager
def _joining(blocks: bool) -> Iterator[None]:
    token = _says.set(blocks)
    try:
        yield
    finally:
        _says.reset(token)


def allow_join_result() -> Any:
    """A context manager that allows waiting for results, even within a task."""
    return _joining(False)


def denied_join_result() -> Any:
    """A context manager that forbids waiting for results."""
    return _joining(True)


class ResultBase:
    """The base class of all results."""

    parent: Any = None
    """The result of the previous step in a chain."""


making_promise = threading.Lock()
"""Held while the promise of a result is set, because threads may ask for it at the same moment."""


def new_promise(*args: Any, **kwargs: Any) -> Any:
    """Create one of kombu's promises that threads may share."""
    from sidekiq_celery._result.promise import SharedPromise

    return SharedPromise(*args, **kwargs)


def result_from_tuple(r: Any, app: Any = None) -> Any:
    """
    Restore a result from a tuple. A result is returned unchanged.

    Args:
        r: `((id, parent), children)` as returned by `as_tuple`; children are None unless it is a group.
    """
    app = app_or_default(app)
    if isinstance(r, ResultBase):
        return r
    own, nodes = r
    id, parent = own if isinstance(own, list | tuple) else (own, None)
    if parent:
        parent = result_from_tuple(parent, app)
    if nodes is None:
        return app.AsyncResult(id, parent=parent)
    return app.GroupResult(id, [result_from_tuple(child, app) for child in nodes], parent=parent)
