"""What all results share, and whether one may wait for them here."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sidekiq_celery import _state
from sidekiq_celery._send.running_task import running
from sidekiq_celery._state import app_or_default

__all__ = (
    "ResultBase", "allow_join_result", "assert_will_not_block", "denied_join_result", "new_promise",
    "result_from_tuple", "task_join_will_block",
)  # fmt: skip

_WOULD_BLOCK = (
    "Never call result.get() within a task! It holds up a worker, and all may come to wait for each other. Call the "
    "next task by a chain or a chord, await the result in an async task, or see allow_join_result()"
)


# What a block of the program says, in its thread or coroutine; else it depends on where one is.
_says: ContextVar[bool | None] = ContextVar("sidekiq_celery.joining", default=None)


def task_join_will_block() -> bool:
    """Whether waiting for a result in here would hold up a worker."""
    said = _says.get()
    if said is not None:
        return said
    run = running.get()
    return (run is not None and run.is_open) or _state.task_join_will_block()


def assert_will_not_block() -> None:
    """
    Check that one may wait here.

    Raises:
        RuntimeError: A task runs here.
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
    """Within it one may wait for results, also in a task."""
    return _joining(False)


def denied_join_result() -> Any:
    """Within it one may not wait for results."""
    return _joining(True)


class ResultBase:
    """The root of all results."""

    parent: Any = None
    """The result of the step before, in a chain."""


def new_promise(*args: Any, **kwargs: Any) -> Any:
    """A promise of kombu's."""
    from vine import promise  # type: ignore[import-untyped]

    return promise(*args, **kwargs)


def result_from_tuple(r: Any, app: Any = None) -> Any:
    """
    The result that a tuple stands for; a result as it is.

    Args:
        r: `((id, parent), children)` as by `as_tuple`; children are None but for a group.
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
