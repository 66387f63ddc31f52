"""Reads large collections in pages, with SCAN, SSCAN, HSCAN and ZSCAN."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs

# Redis needs less than a millisecond for so many names.
_SET_COUNT = 10_000


def pages(send: Callable[..., Any], command: Sequence[str], *options: Any) -> Iterator[list[bytes]]:
    """
    The pages of one walk.

    Args:
        send: The `command` of a pool or a link.
        command: SCAN, or one of the others with its key.
        options: Follow the cursor, as MATCH and COUNT.
    """
    cursor = b"0"
    while True:
        cursor, page = send(*command, cursor, *options)
        yield page
        if cursor == b"0":
            return


def members(pool: Pool, key: str) -> list[str]:
    """
    The members of a set of names, sorted and without duplicates. Those that are not UTF-8 become `surrogateescape`, so
    that each still names its key.
    """
    found = {member for page in pages(pool.command, ("SSCAN", key), "COUNT", _SET_COUNT) for member in page}
    return sorted(map(name_in, found))


def scored_members(
    pool: Pool, key: str, match: str | bytes | None, count: int, looked_at: Callable[[int], None] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """
    The members of a sorted set with their scores, in no particular order.

    A member that is there the whole time is yielded at least once, whatever is added and removed meanwhile. A member
    whose score changes may be yielded twice.

    Args:
        match: A glob as for KEYS; None for all members.
        count: How many members to scan in one round trip.
        looked_at: Called after each round trip with the approximate number of members scanned so far.
    """
    pattern = () if match is None else ("MATCH", match)
    for number, flat in enumerate(pages(pool.command, ("ZSCAN", key), *pattern, "COUNT", count), start=1):
        if looked_at is not None:
            looked_at(number * count)
        yield from pairs(flat)


def literal(text: str) -> str:
    """*text* with the special characters of a glob escaped."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
