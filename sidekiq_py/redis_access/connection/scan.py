"""Reads large sets and sorted sets in pages, with SSCAN and ZSCAN."""

from collections.abc import Callable, Iterator

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs

# Redis needs less than a millisecond for so many names.
_SET_COUNT = 10_000


def members(pool: Pool, key: str) -> list[str]:
    """
    The members of a set of names, sorted and without duplicates. Those that are not UTF-8 become `surrogateescape`, so
    that each still names its key.
    """
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, page = pool.command("SSCAN", key, cursor, "COUNT", _SET_COUNT)
        found.update(page)
        if cursor == b"0":
            return sorted(member.decode(errors="surrogateescape") for member in found)


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
    cursor = b"0"
    number = 0
    while True:
        cursor, flat = pool.command("ZSCAN", key, cursor, *pattern, "COUNT", count)
        number += count
        if looked_at is not None:
            looked_at(number)
        yield from pairs(flat)
        if cursor == b"0":
            return


def literal(text: str) -> str:
    """*text* with the special characters of a glob escaped."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
