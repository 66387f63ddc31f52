"""
Reads the heartbeats of all processes, and sends signals to processes.

A process is a member of the set `processes`. The hash at its identity expires a minute after its last beat.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection import scan
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs, readable, well_typed
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.connection.transaction import transact
from sidekiq_py.wire import keys
from sidekiq_py.wire.number_text import to_i

PRUNE_PROCESSES = Script("prune_processes")
COUNT: Command = ("SCARD", keys.PROCESSES)

_LEADER = "dear-leader"
_CLEANUP_SECONDS = 60
# When a cluster has lost power, thousands have expired. Redis needs 10 ms for 3,000 of them.
_PRUNED_AT_ONCE = 500
# A server that takes no writes now.
_REFUSES_WRITES = frozenset({"MISCONF", "NOREPLICAS", "OOM", "READONLY"})
_SIGNAL_SECONDS = 60
_RUNNING_OF = 50
"""The running jobs of so many processes are read at once."""
_BEAT_FIELDS = ("info", "concurrency", "busy", "beat", "quiet", "rss", "rtt_us")
# Up to 6.4.1, the key of the running jobs ends in `workers`. The identity does not show which release wrote it.
_WORK_SUFFIXES = ("work", "workers")


class Beat(NamedTuple):
    """
    The last heartbeat of one process, as stored in Redis. A field that its release does not write is None.

    Args:
        info: JSON.
        busy: The number of running jobs.
        beat: When, in epoch s.
        quiet: `true` or `false`.
        rss: Resident memory in kB.
        rtt_us: The time of a round trip to Redis in microseconds.
        ttl_ms: How long it still lasts; below 0 without an end, None for a user who may not use PTTL.
    """

    identity: str
    info: bytes
    concurrency: bytes | None
    busy: bytes | None
    beat: bytes | None
    quiet: bytes | None
    rss: bytes | None
    rtt_us: bytes | None
    ttl_ms: int | None


def identities(pool: Pool) -> list[str]:
    """The identities of all registered processes, sorted. Some may be dead but not pruned yet."""
    return scan.members(pool, keys.PROCESSES)


def count(pool: Pool) -> int:
    """How many processes are registered."""
    return int(pool.command(*COUNT))


def beats(pool: Pool, names: Sequence[str]) -> list[Beat]:
    """The heartbeats of the processes that have one, in one round trip."""
    replies = pool.replies([command for name in names for command in beat_commands_of(name)])
    rows = zip(names, well_typed(replies[::2]), readable(replies[1::2]), strict=True)
    return [Beat._make((name, *row, ttl_ms)) for name, row, ttl_ms in rows if row and row[0] is not None]


def busy(pool: Pool) -> int:
    """The total number of jobs that all processes reported as running."""
    replies = pool.well_typed([("HGET", name, "busy") for name in identities(pool)])
    return sum(map(to_i, replies))


def prune(pool: Pool) -> int:
    """
    Remove processes whose heartbeat has expired from the registry, at most once a minute across all callers.

    Returns:
        How many were removed.

    Source: Sidekiq 8.1.7, api.rb, `ProcessSet#cleanup`. Ruby checks first and removes later, so it may remove a process
    that has sent a beat in between; here, check and removal are one step.
    """
    try:
        is_due = pool.command("SET", keys.PROCESS_CLEANUP, "1", "NX", "EX", _CLEANUP_SECONDS)
    except RedisReplyError as error:
        if error.code not in _REFUSES_WRITES:
            raise
        # Whoever looks at a full Redis has to see its processes.
        return 0
    if not is_due:
        return 0
    names = identities(pool)
    replies = pool.well_typed([("HEXISTS", name, "info") for name in names])
    # A process whose key has the wrong type stays: nobody knows whether it lives.
    expired = [name for name, is_there in zip(names, replies, strict=True) if is_there == 0]
    return sum(_prune(pool, part) for part in slices_of(expired, _PRUNED_AT_ONCE))


def _prune(pool: Pool, expired: Sequence[str]) -> int:
    return int(pool.run(lambda link: PRUNE_PROCESSES.run(link, [keys.PROCESSES, *expired], expired)))


def signal(pool: Pool, identity: str, name: str) -> None:
    """
    Send a signal that a process picks up at its next beat.

    Args:
        name: `TSTP` (quiet), `TERM` (stop) or `TTIN` (thread dump).

    Source: Sidekiq 8.1.7, api.rb, `Process#signal`.
    """
    key = keys.signals(identity)
    # After a lost reply it is sent again. At worst, that is like pressing the same button twice.
    transact(pool, [("LPUSH", key, name), ("EXPIRE", key, _SIGNAL_SECONDS)])


def leader(pool: Pool) -> str:
    """The identity of the leader that Sidekiq Enterprise has elected; empty if there is none."""
    identity: bytes | None = pool.command("GET", _LEADER)
    return name_in(identity) if identity else ""


def running(pool: Pool) -> Iterator[tuple[str, str, bytes]]:
    """
    What each process was running at its last beat: identity, thread, entry of the work hash. Reads a slice of the
    processes at a time, because the entries of all of them may take a hundred megabytes.

    A process that serves readers of several releases writes its hash under both names; each thread is listed once.
    """
    size = len(_WORK_SUFFIXES)
    for names in slices_of(identities(pool), _RUNNING_OF):
        commands = [("HGETALL", keys.work(name, suffix=suffix)) for name in names for suffix in _WORK_SUFFIXES]
        # A key of the wrong type must not hide what the other processes run.
        replies = pool.well_typed([*(("EXISTS", name) for name in names), *commands])
        alive, hashes = replies[: len(names)], replies[len(names) :]
        for index, name in enumerate(names):
            if alive[index]:
                yield from _rows(name, hashes[index * size : (index + 1) * size])


def beat_commands_of(name: str) -> list[Command]:
    """The commands that read one process's heartbeat, to send along with other reads."""
    return [("HMGET", name, *_BEAT_FIELDS), ("PTTL", name)]


def commands_of(name: str) -> list[Command]:
    """Like `beat_commands_of`, along with the running jobs."""
    return [*beat_commands_of(name), *(("HGETALL", keys.work(name, suffix=one)) for one in _WORK_SUFFIXES)]


def read_reply(name: str, replies: Sequence[Any]) -> tuple[Beat | None, list[tuple[str, str, bytes]]]:
    """
    The heartbeat, if any, and the running jobs, from the replies to `commands_of` or `beat_commands_of`; None marks a
    failed reply.
    """
    fields, ttl_ms, *hashes = replies
    if not fields or fields[0] is None:
        return None, []
    return Beat._make((name, *fields, ttl_ms)), _rows(name, hashes)


def _rows(name: str, hashes: Sequence[list[bytes] | None]) -> list[tuple[str, str, bytes]]:
    found: dict[str, bytes] = {}
    for flat in hashes:
        for thread, entry in pairs(flat or []):
            found.setdefault(thread.decode(errors="replace"), entry)
    return [(name, thread, entry) for thread, entry in found.items()]
