"""Walks over keys that may be large: SSCAN and ZSCAN as iterators."""

from collections.abc import Callable, Iterator

from sidekiq_py.redis_access.connection.pool import Pool

_SET_COUNT = 1000


def members(pool: Pool, key: str) -> list[str]:
    """The members of a set of names, in order, each once."""
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, page = pool.command("SSCAN", key, cursor, "COUNT", _SET_COUNT)
        found.update(page)
        if cursor == b"0":
            return sorted(member.decode(errors="replace") for member in found)


def scored_members(
    pool: Pool, key: str, match: str | bytes | None, count: int, looked_at: Callable[[int], None] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """
    The members of a sorted set with their scores, in no order.

    What is there all the time is yielded at least once, whatever is added and removed meanwhile; what changes its score
    may come twice.

    Args:
        match: A glob, as of KEYS; None for all.
        count: How many are looked at in one round trip.
        looked_at: Told after each round trip about how many Redis has looked at.
    """
    pattern = () if match is None else ("MATCH", match)
    cursor = b"0"
    number = 0
    while True:
        cursor, flat = pool.command("ZSCAN", key, cursor, *pattern, "COUNT", count)
        number += count
        if looked_at is not None:
            looked_at(number)
        yield from zip(flat[::2], flat[1::2], strict=True)
        if cursor == b"0":
            return


def literal(text: str) -> str:
    """*text* with what a glob would read as a wildcard made plain."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
