"""
Double-entry bookkeeping of jobs: what was pushed, what ran, what still waits.

Jobs write one line per event into a file outside Redis, opened to append, so that processes may be killed at any
moment. In the end every job that was pushed must have run or stand somewhere in Redis.
"""

import itertools
import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

STARTED, GOES_ON, CUT_OFF, ENDED, DIED = "S", "G", "C", "E", "D"
_LINE = re.compile(r"([A-Z]) (\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)


class LedgerWriter:
    """
    What jobs note down. Safe in threads and across processes.

    Each line: the event, the job's number, the process, the thread, nanoseconds on the system's monotonic clock.
    """

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, event: str, number: int) -> None:
        """Append a line."""
        thread = threading.get_ident()
        os.write(self._fd, f"{event} {number} {os.getpid()} {thread} {time.monotonic_ns()}\n".encode())


@dataclass(frozen=True, slots=True)
class Run:
    """
    One run of a job.

    Args:
        start: Seconds on the system's monotonic clock.
        seen: When it was last heard of.
        end: When it came to its end; None if it never did.
    """

    number: int
    pid: int
    thread: int
    start: float
    seen: float
    end: float | None


class Ledger:
    """What was noted down so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[tuple[str, int, int, int, float]]:
        """Event, number, process, thread, seconds; in the order in which they were written."""
        found = []
        # The last line may be in the middle of being written. The kernel cuts a write short at the end of a page if the
        # process is killed just then, and the next line follows without a break.
        for line in _LINE.findall(self.path.read_text().rpartition("\n")[0]):
            event, number, pid, thread, nanoseconds = line
            found.append((event, int(number), int(pid), int(thread), int(nanoseconds) / 1e9))
        return found

    def runs(self) -> list[Run]:
        """Every run, by the time of its start."""
        is_open: dict[tuple[int, int, int], tuple[float, float]] = {}
        runs = []
        for event, number, pid, thread, at in self.lines():
            key = (number, pid, thread)
            if event == STARTED:
                if key in is_open:
                    runs.append(Run(*key, *is_open[key], None))
                is_open[key] = (at, at)
            elif event in (GOES_ON, CUT_OFF):
                is_open[key] = (is_open[key][0], at)
            elif event == ENDED:
                runs.append(Run(*key, is_open.pop(key)[0], at, at))
        runs += [Run(*key, *times, None) for key, times in is_open.items()]
        return sorted(runs, key=lambda run: run.start)

    def runs_by_number(self) -> dict[int, list[Run]]:
        """The runs of each job that ran."""
        found: dict[int, list[Run]] = defaultdict(list)
        for run in self.runs():
            found[run.number].append(run)
        return dict(found)

    def count(self, event: str) -> int:
        """How many lines of that event there are."""
        return sum(1 for line in self.path.read_bytes().splitlines() if line.startswith(event.encode() + b" "))

    def numbers(self, event: str) -> Counter[int]:
        """How often each job has that event."""
        return Counter(number for kind, number, *_ in self.lines() if kind == event)

    def overlaps(self, deaths: dict[int, float] | None = None) -> list[tuple[Run, Run]]:
        """
        Pairs of runs of one job of which the second began before the first had ended.

        Args:
            deaths: When each process that did not end its runs was sent its death.
        """
        known = deaths or {}
        pairs = []
        for runs in self.runs_by_number().values():
            for first, second in itertools.pairwise(runs):
                end = first.end if first.end is not None else known.get(first.pid, first.seen)
                if second.start < max(end, first.seen):
                    pairs.append((first, second))
        return pairs


@dataclass(frozen=True, slots=True)
class Balance:
    """
    The books at the end.

    Args:
        again: Jobs that started more than once.
        waiting: Jobs that never ran to their end and stand in Redis.
        lost: Jobs that neither ran nor stand anywhere.
        doubled: Jobs that stand in Redis more than once.
    """

    pushed: int
    once: int
    again: int
    waiting: int
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    places: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        places = " ".join(f"{name}={count}" for name, count in sorted(self.places.items()) if count)
        text = f"pushed={self.pushed} ran_once={self.once} ran_again={self.again} waiting={self.waiting}"
        return f"{text} lost={len(self.lost)} doubled={len(self.doubled)}" + (f" ({places})" if places else "")


def job_text(
    number: int, job_class: str = "tick", args: Sequence[Any] = (), queue: str = "default", **more: Any
) -> str:
    """A payload as Ruby would push it; the job's number is its first argument and its jid."""
    now = time.time()
    job = {
        "retry": True,
        "queue": queue,
        "class": job_class,
        "args": [number, *args],
        "jid": f"{number:024x}",
        "created_at": now,
        "enqueued_at": now,
        **more,
    }
    return json.dumps(job, separators=(",", ":"))


def push_jobs(client: redis.Redis, texts: Iterable[str], queue: str = "default") -> int:
    """Push payloads in slices of a thousand; the first is the first to run. How many there were."""
    jobs = list(texts)
    client.sadd("queues", queue)
    for start in range(0, len(jobs), 1000):
        client.lpush(f"queue:{queue}", *jobs[start : start + 1000])
    return len(jobs)


def stock(client: redis.Redis) -> dict[str, list[bytes]]:
    """Every payload in Redis by where it stands: a queue, a set, an in-flight hash, an inbox."""
    found: dict[str, list[bytes]] = {}
    for key in client.scan_iter(count=1000):
        name = key.decode()
        if name.startswith("queue:") or name.startswith("sidekiq_py:inbox:"):
            found[name] = client.lrange(key, 0, -1)
        elif name.startswith("sidekiq_py:inflight:"):
            found[name] = client.hvals(key)
        elif name in ("retry", "schedule", "dead"):
            found[name] = client.zrange(key, 0, -1)
    return found


def number_of(raw: bytes) -> int:
    """The job's number in a payload."""
    return int(json.loads(raw)["args"][0])


def balance(client: redis.Redis, ledger: Ledger, pushed: int) -> Balance:
    """Close the books: jobs 0 to *pushed* - 1 were pushed."""
    runs = ledger.runs_by_number()
    places: Counter[str] = Counter()
    standing: Counter[int] = Counter()
    for name, raws in stock(client).items():
        kind = name.split(":")[1] if name.startswith("sidekiq_py:") else name
        places[kind] += len(raws)
        standing.update(map(number_of, raws))
    ended = {number for number, found in runs.items() if any(run.end is not None for run in found)}
    everyone = range(pushed)
    return Balance(
        pushed=pushed,
        once=sum(1 for number in ended if len(runs[number]) == 1),
        again=sum(1 for found in runs.values() if len(found) > 1),
        waiting=sum(1 for number in everyone if number not in ended and standing[number]),
        lost=tuple(number for number in everyone if number not in runs and not standing[number]),
        doubled=tuple(number for number, count in standing.items() if count > 1),
        places=dict(places),
    )
