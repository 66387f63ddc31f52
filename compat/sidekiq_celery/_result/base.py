"""What all results share, and whether one may wait for them here."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sidekiq_celery._state import _set_task_join_will_block, app_or_default, task_join_will_block

__all__ = (
    "ResultBase", "allow_join_result", "assert_will_not_block", "denied_join_result", "new_promise",
    "result_from_tuple",
)  # fmt: skip

_WOULD_BLOCK = (
    "Never call result.get() within a task! It holds up a worker, and all may come to wait for each other. Call the "
    "next task by a chain or a chord, await the result in an async task, or see allow_join_result()"
)


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
    before = task_join_will_block()
    _set_task_join_will_block(blocks)
    try:
        yield
    finally:
        _set_task_join_will_block(before)


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
