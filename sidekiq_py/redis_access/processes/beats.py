"""The heartbeat: tells Ruby's Web UI that a process is alive and what it runs, and picks up signals sent from there."""

import errno
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import of_transaction, raise_first
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import score_text

BEAT_TTL_SECONDS = 60


class Beat(NamedTuple):
    """
    One heartbeat.

    Args:
        identity: `<host>:<pid>:<nonce>`.
        info: The JSON of `process_info`.
        concurrency: The number of threads in all capsules.
        busy: How many jobs are running.
        is_quiet: True if the process no longer fetches jobs.
        rss_kb: The process's resident memory.
        now: Seconds since the epoch.
        work: Maps each thread id to the JSON of the job that runs there.
        rtt_us: The microseconds of the round trip of the beat before, to publish; 0 for the first beat.
    """

    identity: str
    info: bytes
    concurrency: int
    busy: int
    is_quiet: bool
    rss_kb: int
    now: float
    work: Mapping[str, bytes]
    rtt_us: int = 0


class BeatReply(NamedTuple):
    """
    The result of a beat.

    Args:
        signal: One signal sent from a Web UI (`TSTP`, `TERM`, `TTIN`, …), or `None`.
        was_known: True if Redis still knew the process from an earlier beat.
        rtt_us: The time of the round trip in microseconds.
    """

    signal: str | None
    was_known: bool
    rtt_us: int


def beat(pool: Pool, beat: Beat, *, dialect: Dialect) -> BeatReply:
    """
    Send a heartbeat, in one round trip, which is timed. The first beat has none to publish yet and times another one.
    Ruby does that at each beat; an idle Redis would wake up once more for it.

    A signal is read with the beat and removed in another round trip, so a beat whose reply is lost doesn't lose it.
    Ruby pops it with the beat.

    Raises:
        RedisError: As `Pool.run` does. The beat may have been written. A signal that was not removed comes again.

    Source: Sidekiq 6.4.1 and 8.1.7, launcher.rb, `❤`.
    """
    was_known, signal, rtt_us = pool.run(lambda link: _beat(link, beat, dialect))
    if signal is not None:
        pool.command("LREM", keys.signals(beat.identity), -1, signal)
    return BeatReply(signal.decode(errors="replace") if signal else None, was_known, rtt_us)


def clear(pool: Pool, identity: str, *, dialect: Dialect) -> None:
    """
    Remove a process that ends from the list. Its hash expires by itself.

    Source: Sidekiq 6.4.1 and 8.1.7, launcher.rb, `clear_heartbeat`.
    """
    pool.batch([("SREM", keys.PROCESSES, identity), ("UNLINK", *_work_keys(identity, dialect))])


def rss_kb() -> int:
    """This process's resident memory in KB, or 0 if it can open no files. Without /proc, the highest value so far."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except OSError as error:
        if error.errno == errno.EMFILE:
            return 0
        import resource  # only loaded if it is needed

        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return highest // 1024 if sys.platform == "darwin" else highest  # macOS alone counts bytes


def _beat(link: Link, beat: Beat, dialect: Dialect) -> tuple[bool, bytes | None, int]:
    """Whether Redis knew the process, the oldest signal, and the microseconds of the round trip."""
    if dialect.has_rtt and not beat.rtt_us:
        beat = beat._replace(rtt_us=_timed(link, [("PING",)])[1])
    work = _work_commands(beat, dialect)
    replies, rtt_us = _timed(link, [*work, *_identity_commands(beat, dialect)])
    raise_first(replies)
    of_transaction(replies[len(work) - 1])
    _, existed, _, _, signal = of_transaction(replies[-1])
    return bool(existed), signal, rtt_us


def _timed(link: Link, commands: Sequence[Command]) -> tuple[list[Any], int]:
    """The replies, and the microseconds that they took."""
    began = time.perf_counter_ns()
    replies = link.batch(commands)
    return replies, (time.perf_counter_ns() - began) // 1000


def _work_commands(beat: Beat, dialect: Dialect) -> list[Command]:
    """The commands that write the running jobs, in a separate transaction as in Ruby."""
    names = _work_keys(beat.identity, dialect)
    commands: list[Command] = [("MULTI",), ("UNLINK", *names)]
    if beat.work:
        fields = [part for field in beat.work.items() for part in field]
        for name in names:
            commands += [("HSET", name, *fields), ("EXPIRE", name, BEAT_TTL_SECONDS)]
    return [*commands, ("EXEC",)]


def _identity_commands(beat: Beat, dialect: Dialect) -> list[Command]:
    identity = beat.identity
    return [
        ("MULTI",),
        ("SADD", keys.PROCESSES, identity),
        ("EXISTS", identity),
        ("HSET", identity, *_fields(beat, dialect)),
        ("EXPIRE", identity, BEAT_TTL_SECONDS),
        ("LINDEX", keys.signals(identity), -1),
        ("EXEC",),
    ]


def _fields(beat: Beat, dialect: Dialect) -> list[Any]:
    """The fields and values, in the release's order, which HGETALL shows."""
    fields: list[Any] = ["info", beat.info]
    if dialect.concurrency_field:
        fields += ["concurrency", beat.concurrency]
    fields += ["busy", beat.busy, "beat", score_text(beat.now)]
    if dialect.has_rtt:
        fields += ["rtt_us", beat.rtt_us]
    fields += ["quiet", "true" if beat.is_quiet else "false"]
    if dialect.has_rss:
        fields += ["rss", beat.rss_kb]
    return fields


def _work_keys(identity: str, dialect: Dialect) -> list[str]:
    return [keys.work(identity, suffix=suffix) for suffix in dialect.work_suffixes]
