"""
The sorted sets `schedule`, `retry` and `dead`: the reads and edits of the data API.

A member is found by its exact bytes, never by its score, because two jobs may be due at the same instant. Moves to a
queue and to the dead set are in `promote.py`.
"""

from collections.abc import Sequence
from typing import Any

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs, raise_first
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.transaction import transact
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits, add_to_dead, trim_dead

PAGE_MEMBERS = Script("page_members")
RESCHEDULE = Script("reschedule")

_PAGE_BYTES = 1_000_000

ScoredMember = tuple[bytes, bytes]
"""A member and its score, as Redis writes it."""


def size(pool: Pool, key: str) -> int:
    """How many members the set has."""
    return int(pool.command("ZCARD", key))


def size_between(pool: Pool, key: str, low: str, high: str) -> int:
    """How many members have scores from *low* to *high*, each as ZCOUNT takes it."""
    return int(pool.command("ZCOUNT", key, low, high))


def page(pool: Pool, key: str, count: int, *, after: ScoredMember | None, downward: bool) -> list[ScoredMember]:
    """
    The next members after a position, whatever was added or removed since it was read: *count* of them, or fewer if
    they are large, but at least one if there is one.

    Args:
        after: The last member seen and its score; None to start.
        downward: True to go from the highest score to the lowest.
    """
    arguments: list[Any] = ["down" if downward else "up", count, _PAGE_BYTES]
    if after is not None:
        arguments += [after[1], after[0]]
    return pairs(pool.run(lambda link: PAGE_MEMBERS.run(link, [key], arguments)))


def at_rank(pool: Pool, key: str, start: int, count: int, *, downward: bool) -> tuple[list[ScoredMember], int]:
    """The members from rank *start* on, and the size of the set."""
    read = "ZREVRANGE" if downward else "ZRANGE"
    flat, length = pool.batch([(read, key, start, start + count - 1, "WITHSCORES"), ("ZCARD", key)])
    return pairs(flat), length


def ends(pool: Pool, key: str, count: int) -> list[bytes]:
    """The members with the lowest and with the highest scores, *count* of each; in a small set some come twice."""
    lowest, highest = pool.batch([("ZRANGE", key, 0, count - 1), ("ZRANGE", key, -count, -1)])
    return [*lowest, *highest]


def first_pages(pool: Pool, key: str, ranges: Sequence[tuple[str, str]], count: int) -> list[list[ScoredMember]]:
    """For each range from a score to another, the first *count* of the members that have such a score."""
    commands = [("ZRANGEBYSCORE", key, low, high, "WITHSCORES", "LIMIT", 0, count) for low, high in ranges]
    return [pairs(flat) for flat in pool.batch(commands)]


def add(pool: Pool, key: str, score: str, member: bytes) -> None:
    """Add a member."""
    pool.command("ZADD", key, score, member)


def remove(pool: Pool, key: str, members: Sequence[bytes]) -> int:
    """Remove members by their exact bytes. Returns how many were there."""
    return int(pool.command("ZREM", key, *members)) if members else 0


def reschedule(pool: Pool, key: str, member: bytes, *, score: str, spelling: bytes) -> bool:
    """
    Give a member another score.

    Args:
        spelling: The member's new bytes; usually they are the same.

    Returns:
        False if it was no longer in the set; nothing was written then.
    """
    return bool(pool.run(lambda link: RESCHEDULE.run(link, [key], [member, score, spelling])))


def reschedule_all(
    pool: Pool, key: str, members: Sequence[tuple[bytes, bytes]], *, score: str
) -> list[int | RedisReplyError]:
    """
    Give members the same score, in one round trip.

    Args:
        members: Each with its new bytes.

    Returns:
        For each, 1, or 0 if it was no longer in the set, or why Redis refused.

    Raises:
        RedisError: The server is in trouble. Some of the members may have the new score.
    """
    calls = [([key], [member, score, spelling]) for member, spelling in members]

    def run(link: Link) -> list[Any]:
        replies = RESCHEDULE.replies(link, calls)
        # Raised here, so that the pool can find the new primary.
        raise_first([reply for reply in replies if isinstance(reply, RedisReplyError) and reply.is_about_server])
        return replies

    return pool.run(run)


def clear(pool: Pool, key: str) -> int:
    """Remove all members. Returns how many there were."""
    length, _ = transact(pool, [("ZCARD", key), ("UNLINK", key)])
    return int(length)


def kill(pool: Pool, member: bytes, *, now: float, limits: DeadLimits | None) -> None:
    """Add a member to the dead set and trim the set, in one transaction. Without *limits*, it is not trimmed."""
    trims = trim_dead(now, limits) if limits else []
    transact(pool, [add_to_dead(member, now), *trims])


def trim(pool: Pool, *, now: float, limits: DeadLimits) -> None:
    """Trim the dead set to its limits."""
    pool.batch(trim_dead(now, limits))
