"""
Bounded reads that show what is in a Redis of any size: pages of a queue, names of keys, clocks.

Only `rename` writes. A command that this user may not use raises `RedisReplyError`, except in `replies`. A key of the
wrong type counts as empty; `kinds` shows its type. Names may have any bytes: those that are not UTF-8 become Python's
`surrogateescape` in the strings here, and are converted back to find the key again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection import scan, server_info
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import epoch_seconds, name_in, pairs, raise_first, well_typed
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.wire import keys

PAGE_JOBS = 25
# Redis needs about a millisecond for so many names.
_SCAN_COUNT = 5000
_CLOCK_READINGS = 3
# How many commands share a round trip.
_PAGE_COMMANDS = 1000


class ClockReading(NamedTuple):
    """
    Redis's clock compared with that of this machine.

    Args:
        redis_seconds: Redis's time, in seconds since the epoch.
        ahead_seconds: How far this machine's clock is ahead of it.
        error_seconds: How far *ahead_seconds* may be off because of the time of the round trip.
    """

    redis_seconds: float
    ahead_seconds: float
    error_seconds: float


class Walk(NamedTuple):
    """
    The result of a walk over the names of keys.

    Args:
        names: The names that were kept.
        seen: How many keys were seen; a key may be seen twice.
        is_whole: True if the walk saw all keys.
    """

    names: frozenset[str]
    seen: int
    is_whole: bool


class BeatTime(NamedTuple):
    """
    A heartbeat by two clocks.

    Args:
        said: Epoch seconds by the clock of the process; None if it has not written them.
        written: Epoch seconds by Redis's clock, computed from the key's remaining time to live.
        age: Seconds since *written*.
    """

    said: float | None
    written: float
    age: float


def info(pool: Pool) -> dict[str, str]:
    """The lines of INFO."""
    return server_info.lines_of(pool.command("INFO"))


def setting(pool: Pool, name: str) -> str | None:
    """A setting of the server; None if it does not have it."""
    reply = pool.command("CONFIG", "GET", name)
    return reply[1].decode("utf-8", "replace") if reply else None


def clock(pool: Pool, now: Callable[[], float]) -> ClockReading:
    """
    Compare the clocks of Redis and this machine, by the quickest of a few round trips.

    Args:
        now: This machine's clock, seconds since the epoch.
    """
    readings = [_clock_once(pool, now) for _ in range(_CLOCK_READINGS)]
    return min(readings, key=lambda reading: reading.error_seconds)


def beat_times(pool: Pool, identities: Sequence[str], ttl_seconds: int) -> dict[str, BeatTime]:
    """
    When each process sent its last heartbeat.

    Args:
        ttl_seconds: The time to live that a heartbeat sets on its key.
    """
    asked = [command for name in identities for command in (("TIME",), ("HGET", name, "beat"), ("PTTL", name))]
    replies = _batch(pool, asked)
    found = {}
    for name, time, beat, left_ms in zip(identities, replies[::3], replies[1::3], replies[2::3], strict=True):
        # Without a time to live, or with a longer one, it was written by something else, and its age is unknown.
        if 0 < left_ms <= ttl_seconds * 1000:
            age = ttl_seconds - left_ms / 1000
            found[name] = BeatTime(_number(beat), epoch_seconds(time) - age, age)
    return found


def walk(pool: Pool, match: str, *, is_late: Callable[[], bool], is_kept: Callable[[str], bool]) -> Walk:
    """
    Walk over the names of keys with SCAN.

    Args:
        match: A glob. Redis still goes through all keys, but only sends those that match.
        is_late: Called before each further page; the walk ends when it returns True.
        is_kept: Decides which names to keep.
    """
    found: set[str] = set()
    seen = 0
    cursor = b"0"
    while True:
        cursor, page = pool.command("SCAN", cursor, "MATCH", match, "COUNT", _SCAN_COUNT)
        seen += len(page)
        found.update(filter(is_kept, map(name_in, page)))
        is_whole = cursor == b"0"
        if is_whole or is_late():
            return Walk(frozenset(found), seen, is_whole)


def members(pool: Pool, key: str) -> list[str]:
    """The members of a set of names, sorted."""
    try:
        return scan.members(pool, key)
    except RedisReplyError as error:
        if error.code != "WRONGTYPE":
            raise
        return []


def kinds(pool: Pool, names: Sequence[str]) -> dict[str, str]:
    """The type of each key: `list`, `hash`, …, or `none`."""
    return {name: reply.decode() for name, reply in _of_each(pool, "TYPE", names)}


def texts(pool: Pool, names: Sequence[str]) -> dict[str, bytes]:
    """The values of the keys that are strings; other keys are skipped."""
    return {name: reply for name, reply in _of_each(pool, "GET", names) if reply is not None}


def sizes(pool: Pool, names: Sequence[str], command: str) -> dict[str, int]:
    """The reply to LLEN, HLEN, SCARD or ZCARD for each key; 0 for a key of another type."""
    return {name: reply or 0 for name, reply in _of_each(pool, command, names)}


def existing(pool: Pool, names: Sequence[str]) -> set[str]:
    """The keys that exist."""
    return {name for name, is_there in _of_each(pool, "EXISTS", names) if is_there}


def replies(pool: Pool, command: str, names: Sequence[str]) -> dict[str, Any]:
    """The reply for each key, which is the `RedisReplyError` where only this key is refused."""
    found = _replies(pool, [(command, name) for name in names])
    raise_first([reply for reply in found if isinstance(reply, RedisReplyError) and reply.is_about_server])
    return dict(zip(names, found, strict=True))


def page_starts(size: int, wanted: int) -> Sequence[int]:
    """
    Where the pages of a sample of a queue begin: at the tail (next to run), the head (pushed last) and in the middle.

    Args:
        size: The queue's size.
        wanted: About how many jobs all pages have.
    """
    return range(0, size, PAGE_JOBS) if size <= wanted else _spread(size, max(3, wanted // PAGE_JOBS))


def queue_pages(pool: Pool, places: Sequence[tuple[str, int]]) -> list[list[bytes]]:
    """A page of jobs for each queue and start, in one round trip."""
    commands = [("LRANGE", keys.queue(queue), start, start + PAGE_JOBS - 1) for queue, start in places]
    return [page or [] for page in _batch(pool, commands)]


def set_sample(pool: Pool, key: str, wanted: int) -> Iterator[list[tuple[bytes, float]]]:
    """Pages of a sorted set's lowest and highest members with their scores, about *wanted* in all, no duplicates."""
    half = max(1, wanted // 2)
    low, high = _batch(pool, [(name, key, 0, half - 1, "WITHSCORES") for name in ("ZRANGE", "ZREVRANGE")])
    seen: set[bytes] = set()
    for flat in (low or [], high or []):
        page = [(member, float(score)) for member, score in pairs(flat)]
        yield [entry for entry in page if entry[0] not in seen]
        seen.update(member for member, _ in page)


def hash_of(pool: Pool, key: str) -> dict[str, bytes]:
    """All fields of a small hash."""
    flat = _batch(pool, [("HGETALL", key)])[0] or []
    return {name_in(name): value for name, value in pairs(flat)}


def rename(pool: Pool, key: str, name: str) -> bool:
    """Rename a key. Returns False if there is already a key of that name."""
    return bool(pool.command("RENAMENX", key, name, idempotent=False))


def _spread(size: int, pages: int) -> list[int]:
    """The starts of the pages: the next to run, the newest, then evenly in between."""
    last = size - PAGE_JOBS
    between = [last * number // (pages - 1) for number in range(1, pages - 1)]
    return [last, 0, *between]


def _clock_once(pool: Pool, now: Callable[[], float]) -> ClockReading:
    before = now()
    reply = pool.command("TIME")
    after = now()
    there = epoch_seconds(reply)
    return ClockReading(there, (before + after) / 2 - there, max(0.0, after - before) / 2)


def _of_each(pool: Pool, command: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each key, with the reply of a command for it; None if the key has another type."""
    return zip(names, _batch(pool, [(command, name) for name in names]), strict=True)


def _batch(pool: Pool, commands: Sequence[Command]) -> list[Any]:
    """A reply for each command; None if the key has another type."""
    return well_typed(_replies(pool, commands))


def _replies(pool: Pool, commands: Sequence[Command]) -> list[Any]:
    return [reply for page in slices_of(commands, _PAGE_COMMANDS) for reply in pool.replies(page)]


def _number(text: bytes | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(number) else number
