"""
How large queues were, and how long their jobs waited: one sample a minute for each, for the last two hours.

`sidekiq_py:trend:<queue>` is a list of `<epoch s of the minute>:<size>:<latency s>`, the newest at the end. A worker
writes it for the whole fleet. A queue that was empty for as long has no list.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sidekiq_py.redis_access.connection import scan
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys

KEPT_MINUTES = 120
"""120 samples are 2.5 kB: Redis keeps so short a list as one block."""
MOST_QUEUES = 500
"""So many queues are looked at, the first by name: programs that make one for each customer have thousands."""


@dataclass(frozen=True, slots=True)
class Sample:
    """
    A queue at one minute.

    Args:
        minute: Its start, epoch s.
        size: Jobs waiting.
        latency: Seconds since the job that runs next was enqueued.
    """

    minute: int
    size: int
    latency: float


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A queue now.

    Args:
        oldest: The bytes of the job that runs next; None if the queue is empty.
        has_trend: Samples of it are kept.
    """

    name: str
    size: int
    oldest: bytes | None
    has_trend: bool


def look(pool: Pool) -> list[Seen]:
    """All queues, in two round trips. One whose keys are of a foreign type is left out."""
    names = scan.members(pool, keys.QUEUES)[:MOST_QUEUES]
    commands: list[Command] = [
        command
        for name in names
        for command in (
            ("LLEN", keys.queue(name)),
            ("LINDEX", keys.queue(name), -1),
            ("EXISTS", keys.trend(name)),
        )
    ]
    replies = pool.readable(commands)
    found = [(name, *replies[at : at + 3]) for name, at in zip(names, range(0, len(replies), 3), strict=True)]
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
            # So the list goes when the queue has been empty for as long as it reaches back.
            commands.append(("EXPIRE", key, KEPT_MINUTES * 60))
    pool.readable(commands)


def commands_of(names: Sequence[str]) -> list[Command]:
    """What to ask for the samples of queues; `read_reply` reads each answer."""
    return [("LRANGE", keys.trend(name), -KEPT_MINUTES, -1) for name in names]


def read_reply(reply: Any, now: float) -> tuple[Sample, ...]:
    """
    The samples of a queue, the oldest first; what is none is left out.

    Args:
        reply: None where the key has a foreign type.
        now: Epoch s; older samples than two hours are left out.
    """
    found: dict[int, Sample] = {}
    for text in reply or ():
        sample = _sample(text)
        if sample is not None and now - KEPT_MINUTES * 60 <= sample.minute <= now + 60:
            # When the fleet changes the process that looks, two may have looked in one minute.
            found[sample.minute] = sample
    return tuple(found[minute] for minute in sorted(found))


def _sample(text: bytes) -> Sample | None:
    try:
        minute, size, latency = text.decode().split(":")
        # `float` knows words such as "nan" and "inf", and int takes digits of all scripts.
        if not text.replace(b":", b"").replace(b".", b"").isdigit() or len(text) > 60:
            return None
        return Sample(int(minute), int(size), float(latency))
    except ValueError:
        return None
