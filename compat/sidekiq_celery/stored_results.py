"""
Stored results as they are, for monitoring: many at once, by id or by scanning all of them.

`AsyncResult` turns stored data into exceptions and results. This module only reads the data and never waits for a
result, because the data that a monitor shows may have been written by anyone.

    from sidekiq_celery import stored_results

    stored_results.read(app, [task_id])
    page = stored_results.page(app, states={"FAILURE"})
    page = stored_results.page(app, page.next)
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kombu.exceptions import ContentDisallowed, DecodeError

from sidekiq_celery import states
from sidekiq_celery._result.many_children import ManyTasks, loads_apart
from sidekiq_celery.backends.encoding import COMPRESSED_PAYLOAD_MAGIC, decompress_payload
from sidekiq_celery.backends.redis import RedisBackend
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py.errors import JsonParseError
from sidekiq_py.extension import slices_by_bytes
from sidekiq_py.payloads import loads

__all__ = ("ResultPage", "StoredResult", "page", "read", "read_with_group")

_SCANNED_AT_ONCE = 1000
# A larger result is not decompressed: anyone may have written it, and a page has fifty.
_MOST_BYTES = 8 * 1024 * 1024
# Of the results that a page returns.
_MOST_PAGE_BYTES = 32 * 1024 * 1024
# Of each result in a list, read before its size is known.
_BEGINNING_BYTES = 64 * 1024
# Celery's JSON begins with the state.
_STATE = re.compile(rb'\{"status": "([A-Za-z0-9_-]{1,40})"')
_STATE_BYTES = 60


@dataclass(frozen=True, slots=True)
class StoredResult:
    """
    The stored result of one task.

    Args:
        state: As in `AsyncResult`.
        result: The task's return value, or the details of a custom state; None if the task failed.
        error: The class and text of the task's error; empty if it did not fail.
        name, args, kwargs, worker, queue, retries: Only with the setting `result_extended`.
        children: The tasks that it has called, in the form of `AsyncResult.as_tuple` and `GroupResult.as_tuple`.
        trouble: Why the result cannot be read; all other fields are empty then.
    """

    task_id: str
    state: str
    result: Any = None
    error: str = ""
    traceback: str = ""
    name: str | None = None
    args: Any = None
    kwargs: Any = None
    worker: str | None = None
    queue: str | None = None
    retries: int | None = None
    done_at: datetime | None = None
    parent_id: str | None = None
    group_id: str | None = None
    children: Sequence[Any] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """
    A page of a scan through the results.

    Args:
        next: Where to continue; None at the end.
        looked_at: The number of results that were examined.
    """

    results: tuple[StoredResult, ...]
    next: str | None
    looked_at: int


def read(app: App, task_ids: Sequence[str]) -> dict[str, StoredResult]:
    """
    The stored results of tasks, by task id, in one round trip. Tasks without a stored result are omitted.

    Raises:
        RedisError: As `Pool.run` does.
        ImproperlyConfigured: Results are not stored in Redis.
    """
    backend = _backend(app)
    wanted = [task_id for task_id in dict.fromkeys(task_ids) if task_id]
    texts = backend.mget([backend.get_key_for_task(task_id) for task_id in wanted])
    return {
        task_id: _result(backend, task_id, text)
        for task_id, text in zip(wanted, texts, strict=True)
        if text is not None
    }


def read_for_page(app: App, task_id: str) -> StoredResult | None:
    """As `read`, of one task; if its result is too large for a page, only the state: see `page`. Two round trips."""
    backend = _backend(app)
    sizes = backend.sizes([backend.get_key_for_task(task_id)])
    return next((result for result, _ in _sized(app, backend, {task_id: sizes[0]})), None)


def read_for_list(app: App, task_ids: Sequence[str]) -> dict[str, StoredResult]:
    """
    As `read`, but of results that are too large for a page, only the state: see `page`. Takes one round trip, and more
    if there are results of more than 64 kB.
    """
    backend, allowance = _backend(app), _Allowance()
    wanted = [task_id for task_id in dict.fromkeys(task_ids) if task_id]
    begun = backend.sized_beginnings([backend.get_key_for_task(task_id) for task_id in wanted], _BEGINNING_BYTES)
    found: dict[str, StoredResult] = {}
    others: dict[str, int] = {}
    for task_id, (size, text) in zip(wanted, begun, strict=True):
        if text is None or len(text) != size:
            others[task_id] = size
        elif text:
            found[task_id] = allowance.fitted(_result(backend, task_id, text), size)
    found.update((result.task_id, allowance.fitted(result, size)) for result, size in _sized(app, backend, others))
    return found


def read_with_group(app: App, id: str) -> tuple[StoredResult | None, Sequence[Any]]:
    """
    The data stored under an id that may be a task's or a group's, in one round trip.

    Returns:
        The task's result, and the members of the group as tuples if it was stored with `GroupResult.save`.
    """
    if not id:
        return None, ()
    backend = _backend(app)
    text, group = backend.mget([backend.get_key_for_task(id), backend.get_key_for_group(id)])
    stored = _decoded(backend, group) if group is not None else None
    about = stored.get("result") if isinstance(stored, Mapping) else None
    members = about[1] if isinstance(about, list) and len(about) == 2 and isinstance(about[1], list) else ()
    return None if text is None else _result(backend, id, text), members


def page(
    app: App,
    after: str = "0",
    *,
    states: Collection[str] = (),
    name: str = "",
    worker: str = "",
    begins_workflow: bool = False,
    limit: int = 50,
    look_at: int = 10_000,
) -> ResultPage:
    """
    Scan all stored results, in no particular order.

    Of results that are too large for a page, only the state is returned, with their size as `StoredResult.trouble`:
    those of more than 8 MB, and all but the first 32 MB of a page.

    Args:
        after: `ResultPage.next` of the previous page.
        states: The states to return; all if empty.
        name: Text that the task's name must contain; only results with `result_extended` have a name.
        worker: Text that the name of the worker that ran it must contain, likewise.
        begins_workflow: True to return only tasks that called others and were not called by one, and those whose
            result is not read: that of a task that called very many is large.
        limit: About how many results to return.
        look_at: How many Redis keys to examine at most.

    Raises:
        RedisError: As `Pool.run` does.
        ImproperlyConfigured: Results are not stored in Redis.
        ValueError: *after* is not a number.
    """
    backend = _backend(app)
    cursor = int(after)
    found: list[StoredResult] = []
    looked_at = 0
    allowance = _Allowance()
    for _ in range(max(1, look_at // _SCANNED_AT_ONCE)):
        cursor, task_ids = backend.scan_task_ids(cursor, _SCANNED_AT_ONCE)
        looked_at += len(task_ids)
        sizes = backend.sizes([backend.get_key_for_task(task_id) for task_id in task_ids])
        for result, size in _sized(app, backend, dict(zip(task_ids, sizes, strict=True))):
            if (
                (states and result.state not in states)
                or name not in (result.name or "")
                or worker not in (result.worker or "")
                or (begins_workflow and size is not None and (result.parent_id or not result.children))
            ):
                continue
            found.append(allowance.fitted(result, size))
        if cursor == 0 or len(found) >= limit:
            break
    return ResultPage(tuple(found), str(cursor) if cursor else None, looked_at)


class _Allowance:
    """What a page may still hold."""

    def __init__(self) -> None:
        self._left = _MOST_PAGE_BYTES

    def fitted(self, result: StoredResult, size: int | None) -> StoredResult:
        """The result, or what a page says of it once it is full. One without a size stays as it is."""
        self._left -= size or 0
        return result if self._left >= 0 or size is None else _too_large(result.task_id, result.state, size)


def _sized(app: App, backend: RedisBackend, sizes: Mapping[str, int]) -> Iterator[tuple[StoredResult, int | None]]:
    """
    The results with their bytes, a few megabytes in a round trip. Those that are too large are not read: None.

    Args:
        sizes: The bytes of each result by task id.
    """
    large = [task_id for task_id, size in sizes.items() if size > _MOST_BYTES]
    texts = backend.beginnings([backend.get_key_for_task(task_id) for task_id in large], _STATE_BYTES) if large else []
    for task_id, text in zip(large, texts, strict=True):
        state = _STATE.match(text)
        yield _too_large(task_id, state[1].decode() if state else "", sizes[task_id]), None
    for part in slices_by_bytes([task_id for task_id in sizes if sizes[task_id] <= _MOST_BYTES], sizes.__getitem__):
        for result in read(app, part).values():
            yield result, sizes[result.task_id]


def _too_large(task_id: str, state: str, size: int) -> StoredResult:
    return StoredResult(task_id, state, trouble=f"It has {size:,} bytes, which is too much for a page")


def _backend(app: App) -> RedisBackend:
    backend = app.backend
    if not isinstance(backend, RedisBackend):
        raise ImproperlyConfigured(
            f"results are kept by {type(backend).__name__}; only those in Redis can be looked through"
        )
    return backend


def _result(backend: RedisBackend, task_id: str, text: bytes) -> StoredResult:
    meta = _decoded(backend, text)
    if not isinstance(meta, Mapping):
        return StoredResult(task_id, "", trouble=meta)
    state = _text(meta.get("status")) or ""
    failed = state in states.EXCEPTION_STATES
    kwargs, children = meta.get("kwargs"), meta.get("children")
    return StoredResult(
        task_id,
        state,
        None if failed else meta.get("result"),
        _error(meta.get("result")) if failed else "",
        _text(meta.get("traceback")) or "",
        _text(meta.get("name")),
        meta.get("args"),
        kwargs,
        _text(meta.get("worker")),
        _text(meta.get("queue")),
        meta["retries"] if type(meta.get("retries")) is int else None,
        _moment(meta.get("date_done")),
        _text(meta.get("parent_id")),
        _text(meta.get("group_id")),
        children if isinstance(children, list | ManyTasks) else (),
    )


def _decoded(backend: RedisBackend, text: bytes) -> Any:
    """The decoded data, or the reason why it cannot be read."""
    try:
        text = decompress_payload(text, _MOST_BYTES)
    except DecodeError as error:
        return f"It cannot be read here: {error}"
    if text.startswith(COMPRESSED_PAYLOAD_MAGIC):
        return "It is compressed twice, which no Celery does"
    if backend.serializer == "json" and text.startswith(b"{"):
        apart = loads_apart(text)
        if apart is not None:
            return apart
        if b"__type__" not in text:
            with suppress(ValueError, RecursionError):
                # This skips kombu's check of each object, and the check of each nesting level that jobs need.
                return json.loads(text)
            with suppress(JsonParseError):
                # An integer of any length.
                return loads(text)
    try:
        meta = backend.decode(text)
    except (ContentDisallowed, DecodeError, ValueError, TypeError, RecursionError) as error:
        return f"It cannot be read here: {error}"
    return meta if isinstance(meta, Mapping) else "It is not a Celery result"


def _error(stored: Any) -> str:
    if not isinstance(stored, Mapping):
        return str(stored)
    message = stored.get("exc_message")
    if isinstance(message, list | tuple):
        message = ", ".join(map(str, message))
    return ": ".join(str(part) for part in (stored.get("exc_type"), message) if part)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _moment(value: Any) -> datetime | None:
    """When a task ended. Returns None for anything but a time with a zone."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) and value.tzinfo is not None else None
