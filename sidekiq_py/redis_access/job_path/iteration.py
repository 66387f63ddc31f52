"""
The state of iterable jobs: the hash `it-<jid>`, as Ruby 7.3 and later read and write it.

Fields: `ex` executions so far, `c` the cursor of the next item as JSON, `rt` run time in seconds, `cancelled` whole
epoch seconds. Source: Sidekiq 7.3.2 and 8.1.7, job/iterable.rb; client.rb `cancel!`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import of_transaction, pairs
from sidekiq_py.wire import keys

TTL_SECONDS = 30 * 24 * 3600
FIRST_CURSOR = "null"


class State(NamedTuple):
    """
    Where a job left off.

    Args:
        executions: How many runs were started before.
        cursor: JSON, or None if none was saved, as for a job that was cancelled before its first run.
        runtime_seconds: The total of all runs.
        is_cancelled: True if the job was asked to stop for good.
    """

    executions: int
    cursor: bytes | None
    runtime_seconds: float
    is_cancelled: bool


def fields_of(pool: Pool, jids: Sequence[str]) -> list[dict[bytes, bytes]]:
    """The fields of each job's hash; empty if it has no state. Source: Sidekiq 8.1.7, api.rb."""
    replies = pool.batch([("HGETALL", keys.iteration(jid)) for jid in jids])
    return [dict(pairs(flat)) for flat in replies]


def load(pool: Pool, jid: str) -> State:
    """The saved state; an empty state for a job that never ran."""
    [fields] = fields_of(pool, [jid])
    return State(
        executions=int(fields.get(b"ex", 0)),
        cursor=fields.get(b"c"),
        runtime_seconds=float(fields.get(b"rt", 0)),
        is_cancelled=b"cancelled" in fields,
    )


def save(pool: Pool, jid: str, *, executions: int, cursor: bytes, runtime_text: str, keep_first_ttl: bool) -> bool:
    """
    Save a job's position.

    Args:
        cursor: JSON of the next item's cursor.
        runtime_text: Seconds, as Ruby writes a float.
        keep_first_ttl: True counts the 30 days from the first save, as Sidekiq 8 does; False from the last save, as
            earlier releases do.

    Returns:
        True if the job was cancelled meanwhile.

    Raises:
        RedisError: It was not saved; for example because another program has overwritten the key.
    """
    key = keys.iteration(jid)
    fields = ("HSET", key, "ex", executions, "c", cursor, "rt", runtime_text)
    cancelled = ("HGET", key, "cancelled")
    replies = _with_ttl(pool, key, [("MULTI",), fields], [cancelled, ("EXEC",)], keep_first_ttl=keep_first_ttl)
    return of_transaction(replies[-1])[-1] is not None


def clear(pool: Pool, jid: str) -> None:
    """Delete the state of a job that has finished."""
    pool.command("UNLINK", keys.iteration(jid))


def cancel(pool: Pool, jid: str, *, now: int, keep_first_ttl: bool) -> int:
    """
    Ask an iterable job to stop for good, whether it is running, waiting or in the retry set.

    For a job that never ran, Ruby's own `cancel!` leaves a state without a cursor. That makes Ruby fail with a
    TypeError when it starts the job, also in 7.3, which does not know about cancelling. So the cursor of a first run is
    added.

    Args:
        now: Whole seconds since the epoch.

    Returns:
        When it was first asked to stop.
    """
    key = keys.iteration(jid)
    asked, when = ("HSETNX", key, "cancelled", now), ("HGET", key, "cancelled")
    from_the_start = ("HSETNX", key, "c", FIRST_CURSOR)
    replies = _with_ttl(pool, key, [asked, when, from_the_start], keep_first_ttl=keep_first_ttl)
    return int(replies[1])


def _with_ttl(
    pool: Pool, key: str, before: Sequence[Command], after: Sequence[Command] = (), *, keep_first_ttl: bool
) -> list[Any]:
    """
    Run commands and, between *before* and *after*, set the key's time to live; return the replies.

    EXPIRE has NX since Redis 7. Sidekiq 8 requires that; we accept 6.2.
    """
    expire = ("EXPIRE", key, TTL_SECONDS)
    if not keep_first_ttl:
        return pool.batch([*before, expire, *after])
    try:
        return pool.batch([*before, (*expire, "NX"), *after])
    except RedisReplyError as error:
        if "'expire'" not in str(error):
            raise
    replies = pool.batch([*before, *after])
    # Two concurrent saves may both set it, to the same value.
    if int(pool.command("PTTL", key)) < 0:
        pool.command(*expire)
    return replies
