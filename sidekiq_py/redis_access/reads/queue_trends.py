"""
The size and latency of each queue over the last two hours, one sample per minute.

`sidekiq_py:trend:<queue>` is a list of `<epoch s of the minute>:<size>:<latency s>`, the newest at the end. One worker
writes it for the whole fleet. A queue that was empty the whole time has no list.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection import scan
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import queues
from sidekiq_py.wire import keys

KEPT_MINUTES = 120
"""120 samples take 2.5 kB, which is short enough for Redis to store the list as one block."""
MOST_QUEUES = 500
"""Only this many queues, the first by name, are sampled: programs with a queue per customer have thousands."""


class Sample(NamedTuple):
    """
    A queue at one minute.

    Args:
        minute: The start of the minute, epoch s.
        size: The number of waiting jobs.
        latency: Seconds since the job that runs next was enqueued.
    """

    minute: int
    size: int
    latency: float


class Seen(NamedTuple):
    """
    A queue now.

    Args:
        oldest: The bytes of the job that runs next; None if the queue is empty.
        has_trend: True if the queue has samples.
    """

    name: str
    size: int
    oldest: bytes | None
    has_trend: bool


def look(pool: Pool) -> list[Seen]:
    """The current state of all queues, in two round trips. A queue whose key has the wrong type is skipped."""
    names = scan.members(pool, keys.QUEUES)[:MOST_QUEUES]
    reads = [read for name in names for read in (*queues.commands_of(name), ("EXISTS", keys.trend(name)))]
    replies = pool.readable(reads)
    found = zip(names, replies[::3], replies[1::3], replies[2::3], strict=True)
    return [Seen(name, size, oldest, bool(kept)) for name, size, oldest, kept in found if isinstance(size, int)]


def keep(pool: Pool, samples: Iterable[tuple[str, Sample]]) -> None:
    """Add a sample to each queue's list, in one round trip."""
    commands: list[Command] = []
    for name, sample in samples:
        key = keys.trend(name)
        commands += [
            ("RPUSH", key, f"{sample.minute}:{sample.size}:{sample.latency:.1f}"),
            ("LTRIM", key, -KEPT_MINUTES, -1),
        ]
        if sample.size:
            # This removes the list once the queue has been empty for the time that it covers.
            commands.append(("EXPIRE", key, KEPT_MINUTES * 60))
    pool.readable(commands)


def commands_of(names: Sequence[str]) -> list[Command]:
    """The commands that read the samples of queues; `read_reply` parses each reply."""
    return [("LRANGE", keys.trend(name), -KEPT_MINUTES, -1) for name in names]


def read_reply(reply: Any, now: float) -> tuple[Sample, ...]:
    """
    The samples of a queue, the oldest first. Anything that is not a sample is skipped.

    Args:
        reply: None if the key has the wrong type.
        now: Epoch s; samples older than two hours are skipped.
    """
    found: dict[int, Sample] = {}
    for text in reply or ():
        sample = _sample(text)
        if sample is not None and now - KEPT_MINUTES * 60 <= sample.minute <= now + 60:
            # When another process takes over the sampling, there may be two samples in one minute.
            found[sample.minute] = sample
    return tuple(found[minute] for minute in sorted(found))


def _sample(text: bytes) -> Sample | None:
    try:
        minute, size, latency = text.decode().split(":")
        # `float` accepts words such as "nan" and "inf", and `int` accepts digits of all scripts.
        if not text.replace(b":", b"").replace(b".", b"").isdigit() or len(text) > 60:
            return None
        return Sample(int(minute), int(size), float(latency))
    except ValueError:
        return None
