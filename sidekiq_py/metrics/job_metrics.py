"""
What this process has run, by job class and queue: a handler of telemetry.

Each thread counts in a table of its own that only ever grows, so a job costs no lock. The names and the labels `queue`
and `worker` (the job's class) are those of yabeda-sidekiq, and so are the bounds of the histograms.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import Any

import orjson

from sidekiq_py import telemetry
from sidekiq_py.errors import JobNotFoundError
from sidekiq_py.metrics.text import Family, Sample, histogram_samples, label
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_STOP, Measurements, latency_seconds
from sidekiq_py.wire.json_writer import display_text

BOUNDS_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 120.0, 300.0, 1800.0, 3600.0, 21600.0),
)
_BUCKETS = len(BOUNDS_SECONDS) + 1

# A row: buckets of the runtime, then these three, then buckets of the latency.
_FAILED = _BUCKETS
_RUNTIME = _BUCKETS + 1
_LATENCY = _BUCKETS + 2
_FIRST_LATENCY = _BUCKETS + 3
_LAST_LATENCY = _FIRST_LATENCY + _BUCKETS - 1
_ROW_LENGTH = _FIRST_LATENCY + _BUCKETS

MOST_SERIES = 500
"""Pairs of class and queue that are told apart; each has some 40 lines, and any program may push any class."""

OTHER = ("other", "other")

_STOPS = "sidekiq_py.metrics: jobs that stop"
_EXCEPTIONS = "sidekiq_py.metrics: jobs that raise"

Key = tuple[str, str]
Row = list[float]
Counts = dict[Key, Row]
# Of one thread: by queue, then by class.
_Table = dict[str, dict[str, Row]]


class JobMetrics:
    """
    The counts of one process.

    Args:
        most_series: Pairs of class and queue beyond so many are counted as `other`.
    """

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._mine = threading.local()
        self._tables: list[_Table] = []
        self._known: set[Key] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<JobMetrics series={len(self._known)}>"

    def attach(self) -> None:
        """Count from now on."""
        telemetry.attach(_STOPS, JOB_STOP.name, _counter(self._mine, self._new_row, raises=False))
        telemetry.attach(_EXCEPTIONS, JOB_EXCEPTION.name, _counter(self._mine, self._new_row, raises=True))

    def detach(self) -> None:
        """Count no more."""
        telemetry.detach(_STOPS)
        telemetry.detach(_EXCEPTIONS)

    def counts(self) -> Counts:
        """What was counted so far."""
        return summed([_flat(table) for table in list(self._tables)], self._most_series)

    def _new_row(self, given: Any, queue: str) -> Row:
        table: _Table | None = getattr(self._mine, "table", None)
        if table is None:
            table = self._mine.table = {}
            with self._lock:
                self._tables.append(table)
        # A payload from elsewhere may name anything, a list too.
        known = (label(given if isinstance(given, str) else display_text(given)), label(queue))
        with self._lock:
            if known not in self._known:
                if len(self._known) < self._most_series:
                    self._known.add(known)
                else:
                    known = OTHER
        job_class, queue = known
        return table.setdefault(queue, {}).setdefault(job_class, [0] * _ROW_LENGTH)


def _flat(table: _Table) -> Counts:
    return {(job_class, queue): row for queue, rows in list(table.items()) for job_class, row in list(rows.items())}


def _counter(mine: threading.local, new_row: Callable[[Any, str], Row], *, raises: bool) -> telemetry.Handler:
    """
    What counts jobs that stop, or those that raise. On every job's way, so it is a closure: event and count take half a
    microsecond, of the sixteen that a job costs which does nothing.
    """
    bounds, first, last, now = BOUNDS_SECONDS, BOUNDS_SECONDS[0], BOUNDS_SECONDS[-1], time

    def count(name: str, measurements: Measurements) -> None:
        payload = measurements["payload"]
        seconds = measurements["seconds"]
        job_class = payload["class"]
        if "wrapped" in payload:
            job_class = payload["wrapped"] or job_class
        if raises and isinstance(measurements["error"], JobNotFoundError):
            # Whatever a program has pushed: names that nobody declared would take the places of those that run.
            job_class = OTHER[0]
        try:
            row = mine.table[measurements["queue"]][job_class]
        except (AttributeError, KeyError, TypeError):
            row = new_row(job_class, measurements["queue"])
        if raises:
            if not measurements["is_failure"]:
                # Interrupted by a stop, it runs again: neither a success nor a failure.
                return
            row[_FAILED] += 1
        row[_RUNTIME] += seconds
        row[0 if seconds <= first else bisect_left(bounds, seconds)] += 1
        stamp = payload.get("enqueued_at")
        if stamp.__class__ is float:
            # What Sidekiq up to 7 writes costs no call.
            latency = now() - seconds - stamp
        else:
            found = latency_seconds(payload, now() - seconds)
            if found is None:
                return
            latency = found
        if latency > first:
            row[_LATENCY] += latency
            row[_LAST_LATENCY if latency > last else _FIRST_LATENCY + bisect_left(bounds, latency)] += 1
        else:
            # Clocks of two machines differ: a job never waits for less than nothing.
            row[_LATENCY] += max(0.0, latency)
            row[_FIRST_LATENCY] += 1

    return count


def summed(tables: Iterable[Mapping[Key, Row]], most_series: int = MOST_SERIES) -> Counts:
    """The counts of several threads or processes; beyond *most_series* pairs the rest is `other`."""
    totals: Counts = {}
    for table in tables:
        for key, row in list(table.items()):
            place = key if key in totals or len(totals) < most_series else OTHER
            before = totals.get(place)
            totals[place] = [a + b for a, b in zip(before, row, strict=True)] if before else row.copy()
    return totals


def as_text(counts: Counts) -> str:
    """*counts* as one line, for another process."""
    return orjson.dumps([[*_sound(key), row] for key, row in counts.items()]).decode()


def from_text(text: str) -> Counts:
    """
    The counts that `as_text` has written.

    Raises:
        ValueError: They are not.
    """
    return {(job_class, queue): row for job_class, queue, row in orjson.loads(text) if len(row) == _ROW_LENGTH}


def families(counts: Counts) -> list[Family]:
    """The lines of `/metrics`."""
    labelled = [({"queue": queue, "worker": job_class}, row) for (job_class, queue), row in sorted(counts.items())]
    executed = [(labels, int(sum(row[:_BUCKETS])), int(row[_FAILED])) for labels, row in labelled]
    return [
        Family(
            "sidekiq_jobs_executed_total",
            "counter",
            "Jobs that this worker has run, by class and queue.",
            [Sample(labels, count) for labels, count, _ in executed],
        ),
        Family(
            "sidekiq_jobs_success_total",
            "counter",
            "Jobs that succeeded.",
            [Sample(labels, count - failed) for labels, count, failed in executed],
        ),
        Family(
            "sidekiq_jobs_failed_total",
            "counter",
            "Jobs that raised.",
            [Sample(labels, failed) for labels, _, failed in executed],
        ),
        Family(
            "sidekiq_job_runtime_seconds",
            "histogram",
            "How long jobs ran.",
            [sample for labels, row in labelled for sample in _histogram(labels, row[:_BUCKETS], row[_RUNTIME])],
        ),
        Family(
            "sidekiq_job_latency_seconds",
            "histogram",
            "How long jobs waited since they were last enqueued.",
            [sample for labels, row in labelled for sample in _histogram(labels, row[_FIRST_LATENCY:], row[_LATENCY])],
        ),
    ]


def _histogram(labels: Mapping[str, str], counts: Row, total: float) -> list[Sample]:
    return list(histogram_samples(labels, BOUNDS_SECONDS, [int(count) for count in counts], float(total)))


def _sound(key: Key) -> tuple[str, str]:
    job_class, queue = (part.encode("utf-8", "replace").decode() for part in key)
    return job_class, queue
