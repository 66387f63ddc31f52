"""
Reads execution metrics and deploy marks.

Sidekiq 7 and 8 use different keys for them, so a fleet of both has two sets of keys; the functions here add them up.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs, texts
from sidekiq_py.redis_access.connection.slices import slices_by_size, slices_of
from sidekiq_py.redis_access.connection.transaction import transact
from sidekiq_py.wire import metrics_keys
from sidekiq_py.wire.number_text import to_i

_GENERATIONS = (8, 7)
_BUCKETS = len(metrics_keys.BUCKET_BOUNDS_MS)
_MARKS_SECONDS = 90 * 24 * 3600
_MARK_LOCK_SECONDS = 60
# HGETALL held up Redis for 200 ms when jobs of 50,000 classes had run in a minute. So many fields are also the most in
# one round trip, as Redis replies to all of its commands before it serves anybody else.
_PAGE_FIELDS = 10_000
# The most commands in one round trip.
_SLICE = 2000

Counts = dict[str, int]
"""`<class>|p`, `<class>|f`, `<class>|ms` → sum."""


def minutes(pool: Pool, starts: Sequence[int], job_class: str | None = None) -> Iterator[Counts]:
    """
    The counts of each minute.

    Args:
        starts: In epoch s.
        job_class: Only the counts of this class.
    """
    groups = [[metrics_keys.minute(start, generation) for generation in _GENERATIONS] for start in starts]
    return _sums(pool, groups, job_class)


def ten_minutes(pool: Pool, starts: Sequence[int], job_class: str | None = None) -> Iterator[Counts]:
    """
    The counts of each ten minutes; arguments as for `minutes`.

    Sidekiq 7 only keeps minutes, for eight hours; its part is their sum.
    """
    oldest = max(starts, default=0) - metrics_keys.MINUTE_TTL_SECONDS
    groups = [
        [
            metrics_keys.ten_minutes(start),
            *(metrics_keys.minute(start + 60 * minute, 7) for minute in range(10) if start > oldest),
        ]
        for start in starts
    ]
    return _sums(pool, groups, job_class)


def histograms(pool: Pool, job_class: str, starts: Sequence[int]) -> list[list[int]]:
    """For each minute, how many of a class's jobs fell in each of `BUCKET_BOUNDS_MS`."""
    fields = [part for bucket in range(_BUCKETS) for part in ("GET", "u16", f"#{bucket}")]
    commands: list[Command] = [
        ("BITFIELD_RO", metrics_keys.histogram(job_class, start, generation), *fields)
        for start in starts
        for generation in _GENERATIONS
    ]
    replies = [*_in_slices(pool, commands)]
    return [
        [sum(counts) for counts in zip(*(found or [0] * _BUCKETS for found in of_a_minute), strict=True)]
        for of_a_minute in slices_of(replies, len(_GENERATIONS))
    ]


def marks(pool: Pool, days: Sequence[int]) -> list[dict[str, str]]:
    """For each day (given as any epoch second in it), the deploys: a time in ISO 8601 maps to its label."""
    return [*map(texts, _in_slices(pool, [("HGETALL", metrics_keys.marks(day)) for day in days]))]


def mark(pool: Pool, label: str, stamp: str, epoch_seconds: float) -> bool:
    """
    Record a deploy. Returns False if one with this label was recorded within the last minute.

    Source: Sidekiq 8.1.7, deploy.rb, `mark!`.
    """
    if not pool.command("SET", metrics_keys.mark_lock(label), stamp, "NX", "EX", _MARK_LOCK_SECONDS):
        return False
    key = metrics_keys.marks(epoch_seconds)
    transact(pool, [("HSETNX", key, stamp, label), ("EXPIRE", key, _MARKS_SECONDS)])
    return True


def _sums(pool: Pool, groups: Sequence[Sequence[str]], job_class: str | None) -> Iterator[Counts]:
    """The sums of each group of keys, made as they are asked for: thousands of classes fill hundreds of megabytes."""
    counts = _counts(pool, [name for group in groups for name in group], job_class)
    return (_sum(islice(counts, len(group))) for group in groups)


def _counts(pool: Pool, names: Sequence[str], job_class: str | None) -> Iterator[Counts]:
    if job_class is None:
        for pages in _all_pages(pool, names):
            yield {field.decode(errors="replace"): to_i(value) for flat in pages for field, value in pairs(flat)}
    else:
        # A hash has three fields for each class, and a fleet may have thousands of classes.
        fields = [f"{job_class}|{metric}" for metric in ("p", "f", "ms")]
        for values in _in_slices(pool, [("HMGET", name, *fields) for name in names]):
            yield {field: to_i(value) for field, value in zip(fields, values, strict=False) if value is not None}


def _all_pages(pool: Pool, names: Sequence[str]) -> Iterator[Iterator[list[bytes]]]:
    """The pages of each hash. Small hashes take one round trip together."""
    fields = max(1, _PAGE_FIELDS // max(1, len(names)))
    commands = [command for name in names for command in (("HLEN", name), _page_of(name, b"0", fields))]
    replies = [*_in_slices(pool, commands)]
    begun = [
        _Begun(name, start, size or 0) for name, size, start in zip(names, replies[::2], replies[1::2], strict=True)
    ]
    for part in slices_by_size(begun, lambda one: one.size if one.has_more else 0, _PAGE_FIELDS):
        more = _in_slices(pool, [_page_of(one.name, one.start[0]) for one in part if one.has_more])
        for one in part:
            rest = _pages_from(pool, one.name, next(more)) if one.has_more else ()
            yield chain([one.start[1]] if one.start else [], rest)


class _Begun(NamedTuple):
    """A hash with its first page, behind its cursor, and its number of fields. What cannot be read has no page."""

    name: str
    start: Sequence[Any]
    size: int

    @property
    def has_more(self) -> bool:
        return bool(self.start) and self.start[0] != b"0"


def _page_of(name: str, cursor: bytes, fields: int = _PAGE_FIELDS) -> Command:
    return ("HSCAN", name, cursor, "COUNT", fields)


def _pages_from(pool: Pool, name: str, start: Sequence[Any]) -> Iterator[list[bytes]]:
    """The pages of a hash, of which *start* is the first, with its cursor; none of a key that cannot be read."""
    while start:
        cursor, flat = start
        yield flat
        start = [] if cursor == b"0" else pool.command(*_page_of(name, cursor))


def _in_slices(pool: Pool, commands: Sequence[Command]) -> Iterator[Any]:
    # A key of the wrong type must not hide the other minutes and days.
    return (reply or [] for part in slices_of(commands, _SLICE) for reply in pool.well_typed(part))


def _sum(hashes: Iterable[Counts]) -> Counts:
    total: Counts = {}
    for counts in hashes:
        for field, value in counts.items():
            total[field] = total.get(field, 0) + value
    return total
