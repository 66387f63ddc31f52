"""What a process says of itself to Ruby's Web UI: that it lives, what it runs; and the signals that come back."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first, reply_error
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import score_text

BEAT_TTL_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Beat:
    """
    One heartbeat.

    Args:
        identity: `<host>:<pid>:<nonce>`.
        info: The JSON of `process_info`.
        concurrency: Threads over all capsules.
        busy: How many jobs run.
        is_quiet: No more jobs are fetched.
        rss_kb: Memory of the process.
        now: Seconds since the epoch.
        work: Thread id to the JSON of the job that runs there.
    """

    identity: str
    info: bytes
    concurrency: int
    busy: int
    is_quiet: bool
    rss_kb: int
    now: float
    work: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class BeatReply:
    """
    What came back.

    Args:
        signal: One signal sent from a Web UI (`TSTP`, `TERM`, `TTIN`, …), or `None`.
        was_known: Redis still knew the process from an earlier beat.
        rtt_us: Microseconds of a round trip; 0 where the release does not publish it.
    """

    signal: str | None
    was_known: bool
    rtt_us: int


def beat(pool: Pool, beat: Beat, *, dialect: Dialect) -> BeatReply:
    """
    Say that the process lives: two round trips, of which the first is timed.

    Raises:
        RedisError: As `Pool.run` does; the beat may have been written, a signal that was popped with it is then lost.

    Source: Sidekiq 6.4.1 and 8.1.7, launcher.rb, `❤`.
    """
    return pool.run(lambda link: _beat(link, beat, dialect))


def clear(pool: Pool, identity: str, *, dialect: Dialect) -> None:
    """
    Take the process out of the list at its end; its own hash expires by itself.

    Source: Sidekiq 6.4.1 and 8.1.7, launcher.rb, `clear_heartbeat`.
    """
    pool.batch([("SREM", keys.PROCESSES, identity), ("UNLINK", *_work_keys(identity, dialect))])


def rss_kb() -> int:
    """Resident memory of this process in KB; where /proc is missing, the most it has ever been."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except OSError:
        import resource  # only where it is needed: it is a module of its own to load

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _beat(link: Link, beat: Beat, dialect: Dialect) -> BeatReply:
    rtt_us = _round_trip_us(link) if dialect.has_rtt else 0
    work = _work_commands(beat, dialect)
    replies = raise_first(link.batch([*work, *_identity_commands(beat, rtt_us, dialect)]))
    _exec_reply(replies[len(work) - 1])
    _, existed, _, _, signal = _exec_reply(replies[-1])
    return BeatReply(signal.decode(errors="replace") if signal else None, bool(existed), rtt_us)


def _round_trip_us(link: Link) -> int:
    began = time.perf_counter_ns()
    link.command("PING")
    return (time.perf_counter_ns() - began) // 1000


def _work_commands(beat: Beat, dialect: Dialect) -> list[Command]:
    """The jobs that run, in a transaction of its own as Ruby's."""
    names = _work_keys(beat.identity, dialect)
    commands: list[Command] = [("MULTI",), ("UNLINK", *names)]
    if beat.work:
        fields = [part for field in beat.work.items() for part in field]
        for name in names:
            commands += [("HSET", name, *fields), ("EXPIRE", name, BEAT_TTL_SECONDS)]
    return [*commands, ("EXEC",)]


def _identity_commands(beat: Beat, rtt_us: int, dialect: Dialect) -> list[Command]:
    identity = beat.identity
    return [
        ("MULTI",),
        ("SADD", keys.PROCESSES, identity),
        ("EXISTS", identity),
        ("HSET", identity, *_fields(beat, rtt_us, dialect)),
        ("EXPIRE", identity, BEAT_TTL_SECONDS),
        ("RPOP", keys.signals(identity)),
        ("EXEC",),
    ]


def _fields(beat: Beat, rtt_us: int, dialect: Dialect) -> list[Any]:
    """In the release's order, as HGETALL shows it."""
    fields: list[Any] = ["info", beat.info]
    if dialect.concurrency_field:
        fields += ["concurrency", beat.concurrency]
    fields += ["busy", beat.busy, "beat", score_text(beat.now)]
    if dialect.has_rtt:
        fields += ["rtt_us", rtt_us]
    fields += ["quiet", "true" if beat.is_quiet else "false"]
    if dialect.has_rss:
        fields += ["rss", beat.rss_kb]
    return fields


def _work_keys(identity: str, dialect: Dialect) -> list[str]:
    return [keys.work(identity, suffix=suffix) for suffix in dialect.work_suffixes]


def _exec_reply(replies: Sequence[Any]) -> Sequence[Any]:
    """The replies of a transaction, unless one is an error."""
    for reply in replies:
        if isinstance(reply, redis.RedisError):
            raise reply_error(reply)
    return replies
