"""
Templates for pushes: the bytes of a declared job's payload, made once, with gaps for its arguments, id and times.

They are for pushes without client middleware. Middleware needs the payload as a dict, which `payload.normalize` makes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from sidekiq_py.errors import PayloadError
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.float_text import json3_text
from sidekiq_py.wire.json_dialect import dumps
from sidekiq_py.wire.payload import call_item, normalize

_FILLED = ("args", "jid", "created_at", "enqueued_at")


class PushTemplate:
    """
    Renders the same bytes as `normalize` and `for_queue`.

    Args:
        class_name: The payload's `class`.
        options: The options that the job declares, followed by those of `set(...)`.
        dialect: The release to follow.

    Raises:
        PayloadError: The options are not valid for a job.
        ArgumentTypeError: An option is not JSON.
    """

    __slots__ = ("_bulk", "_bulk_scheduled", "_bulk_scheduled_times", "_immediate", "_time")

    def __init__(self, class_name: str, options: Mapping[str, Any], dialect: Dialect) -> None:
        for key in _FILLED:
            if key in options:
                raise PayloadError(f"{key} belongs to one push, not to the options of {class_name}")
        call = call_item(class_name, [], dialect=dialect)
        self._immediate = _pattern(call, options, dialect, has_enqueued_at=True)
        self._bulk = _pattern({"class": class_name, "args": []}, options, dialect, has_enqueued_at=True)
        self._bulk_scheduled = _pattern(
            {"class": class_name, "args": []}, options, dialect, has_enqueued_at=dialect.bulk_stamps_first
        )
        self._bulk_scheduled_times = 2 if dialect.bulk_stamps_first else 1
        self._time = _exact_time if dialect.float_text is FloatText.JSON3 else orjson.dumps

    def render(self, args_json: bytes, jid: str, created: float | int, enqueued: float | int) -> bytes:
        """
        The bytes of `perform_async`.

        Args:
            args_json: From `dump_args`.
            jid: The job's id.
            created: From `Dialect.stamp`.
            enqueued: From `Dialect.stamp`.
        """
        time = self._time
        return self._immediate % (args_json, orjson.dumps(jid), time(created), time(enqueued))

    def bulk(
        self, args_jsons: Sequence[bytes], jids: Sequence[str], created: float | int, enqueued: float | int
    ) -> "BulkJobs":
        """
        One slice of `perform_bulk`, whose jobs share both times.

        Args:
            args_jsons: Each from `dump_args`.
            jids: As many ids.
            created: From `Dialect.stamp`.
            enqueued: From `Dialect.stamp`.
        """
        # All jobs have the same times, so only arguments and jid are left to fill in.
        escaped = self._bulk.replace(b"%%", b"%%%%")
        pattern = escaped % (b"%b", b"%b", self._time(created), self._time(enqueued))
        return BulkJobs(pattern, args_jsons, jids)

    def render_bulk_scheduled(
        self, args_jsons: Iterable[bytes], jids: Iterable[str], created: float | int
    ) -> list[bytes]:
        """The members of `schedule` for one slice of `perform_bulk(..., at=...)`."""
        times = (self._time(created),) * self._bulk_scheduled_times
        pattern, dump = self._bulk_scheduled, orjson.dumps
        return [pattern % (args_json, dump(jid), *times) for args_json, jid in zip(args_jsons, jids, strict=True)]


class BulkJobs:
    """A slice of jobs whose bytes are not made yet, because more keys may be added to them."""

    __slots__ = ("_args_jsons", "_jids", "_pattern")

    def __init__(self, pattern: bytes, args_jsons: Sequence[bytes], jids: Sequence[str]) -> None:
        self._pattern = pattern
        self._args_jsons = args_jsons
        self._jids = jids

    def may_have(self, key: str) -> bool:
        """True if their options may have this key."""
        return key.encode() in self._pattern

    def render(self, tail: bytes = b"", first: int = 0) -> list[bytes]:
        """
        Make the bytes of the jobs.

        Args:
            tail: Keys to append, after a leading comma, with `%d` for the number of the job.
            first: The number of the first job.
        """
        pattern, jids = self._pattern, map(orjson.dumps, self._jids)
        if not tail:
            return [pattern % both for both in zip(self._args_jsons, jids, strict=True)]
        pattern = b"%b%b}" % (pattern[:-1], tail)
        numbers = range(first, first + len(self._jids))
        return [pattern % filled for filled in zip(self._args_jsons, jids, numbers, strict=True)]


class ItemTemplate:
    """
    Renders the same bytes as `normalize` and `for_queue` for items that differ only in the values that a push fills in
    and in one more key.

    Args:
        item: An item to push, with `args`, `jid` and the additional key in this order.
        options: Defaults for keys that the item lacks.
        dialect: The release to follow.
        key: The additional key, which an item may or may not have.

    Raises:
        PayloadError: The item is not a job.
    """

    __slots__ = ("_time", "_with_key", "_without_key")

    def __init__(self, item: Mapping[str, Any], options: Mapping[str, Any], dialect: Dialect, key: str) -> None:
        without = {name: value for name, value in item.items() if name != key}
        filled = (*_FILLED, key)
        self._with_key = _pattern({**without, key: {}}, options, dialect, has_enqueued_at=True, filled=filled)
        self._without_key = _pattern(without, options, dialect, has_enqueued_at=True)
        self._time = _exact_time if dialect.float_text is FloatText.JSON3 else orjson.dumps

    def render(self, args_json: bytes, jid: str, value_json: bytes, created: float | int) -> bytes:
        """
        The bytes of a job that is pushed to its queue as soon as it is created.

        Args:
            args_json: From `dump_args`.
            jid: The job's id.
            value_json: The additional key's value; empty if the item does not have the key.
            created: From `Dialect.stamp`.
        """
        jid_json, time = orjson.dumps(jid), self._time(created)
        if value_json:
            return self._with_key % (args_json, jid_json, value_json, time, time)
        return self._without_key % (args_json, jid_json, time, time)


def _pattern(
    item: Mapping[str, Any],
    options: Mapping[str, Any],
    dialect: Dialect,
    *,
    has_enqueued_at: bool,
    filled: Collection[str] = _FILLED,
) -> bytes:
    """A payload's bytes with `%b` for each value that a push fills in. Their order is the same in every release."""
    payload = normalize(item, dialect=dialect, now=0.0, jid="-", class_options=options)
    payload.pop("at", None)
    if has_enqueued_at:
        payload["enqueued_at"] = 0
    fields = [
        _escaped(dumps(key, dialect.float_text))
        + b":"
        + (b"%b" if key in filled else _escaped(dumps(value, dialect.float_text)))
        for key, value in payload.items()
    ]
    return b"{" + b",".join(fields) + b"}"


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _exact_time(stamp: float | int) -> bytes:
    """A timestamp with Grisu2's digits, which orjson does not write."""
    return orjson.dumps(stamp) if isinstance(stamp, int) else json3_text(stamp).encode()
