"""
Counts how often each job class ran and failed, and how long it took, for the Metrics page of Sidekiq's Web UI.

Each thread counts in its own table, whose numbers only grow, so counting a job takes no lock. A flush adds the tables
up and writes the difference since the last flush.

Source: Sidekiq 7.3.2 and 8.1.7, metrics/tracking.rb.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.engine.run import run_times
from sidekiq_py.engine.run.run_times import (
    BOUNDS,
    FAILED,
    RUNTIME,
    Row,
    Rows,
    add_latencies,
    add_run,
    added,
    sidekiq_buckets,
)
from sidekiq_py.errors import ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes.metrics import ClassCounts, add_counts
from sidekiq_py.telemetry import LEAST_MILLISECONDS, epoch_seconds
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_writer import display_text

_LEAST = BOUNDS[0]
# A float: comparing a float with an int takes three times as long.
_LEAST_MILLISECONDS = float(LEAST_MILLISECONDS)
# Of such a stamp, in seconds.
_LEAST_MILLISECONDS_AS_SECONDS = LEAST_MILLISECONDS / 1000
# Putting one latency into its bucket takes as long as everything else that is counted for a job. Putting in many at
# once takes a tenth of that each.
_MOST_LATENCIES = 200

# By queue, then by job class. The queue is None for attempts that failed, or that count only for Sidekiq's page.
_Table = dict[str | None, dict[str, Row]]

CountSuccess = Callable[[dict[str, Any], str, float, float], None]
"""Counts one success: `(parsed payload, queue, seconds it ran, when it started by clock.monotonic)`."""


class ExecutionMetrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._tables: list[_Table] = []
        # The thread that counts in each table.
        self._counting: list[threading.Thread] = []
        self._table_lock = threading.Lock()
        # The latencies that are not in their buckets yet, by the `id` of their row; rows are never freed. Each is the
        # start by the monotonic clock minus the time stamp, so all of them lack the same `_offset`.
        self._latencies: dict[int, list[float]] = {}
        self._latency_lock = threading.Lock()
        self._written: dict[str, Row] = {}
        self._flush_lock = threading.Lock()
        keeper = run_times.keeper()
        self._keeps_latency = keeper is not None
        if keeper is not None:
            keeper(self.successes)

    def success_counter(self) -> CountSuccess:
        """A function that counts the successes of one thread. Every job calls it, so it is cheaper than `record`."""
        keeps_latency, put_away = self._keeps_latency, self._put_away
        rows: dict[str, dict[str, tuple[Row, list[float]]]] = {}

        def row_of(job_class: Any, queue: str) -> tuple[Row, list[float]]:
            name = _name_of(job_class)
            # Only `sidekiq_py.metrics` tells queues apart. Rows for thousands of them take long to add up at each beat.
            row = self._new_row(name, queue if keeps_latency else None)
            return rows.setdefault(queue, {}).setdefault(name, (row, self._latencies.setdefault(id(row), [])))

        def count(payload: dict[str, Any], queue: str, seconds: float, started: float) -> None:
            try:
                job_class = payload["class"]
                if "wrapped" in payload:
                    job_class = payload["wrapped"] or job_class
                row, latencies = rows[queue][job_class]
            except (KeyError, TypeError):
                # The first one; or the job has changed its payload.
                row, latencies = row_of(payload.get("wrapped") or payload.get("class"), queue)
            # Inlined from `add_run`: the extra call cost 1 % of a no-op job.
            row[RUNTIME] += seconds
            row[0 if seconds <= _LEAST else bisect_left(BOUNDS, seconds)] += 1
            if keeps_latency:
                try:
                    stamp = payload["enqueued_at"]
                    # Inlined from `epoch_seconds` for the stamps of Sidekiq from 8 on (integer) and up to 7 (float).
                    if stamp.__class__ is int and (enqueued_at := stamp / 1000) > _LEAST_MILLISECONDS_AS_SECONDS:
                        latencies.append(started - enqueued_at)
                    elif stamp.__class__ is float and 0.0 <= stamp < _LEAST_MILLISECONDS:
                        latencies.append(started - stamp)
                    elif (other := epoch_seconds(stamp)) is not None:
                        latencies.append(started - other)
                except (KeyError, OverflowError):
                    pass
                if len(latencies) > _MOST_LATENCIES:
                    put_away(row, latencies)

        return count

    def _put_away(self, row: Row, latencies: list[float]) -> None:
        """Move latencies into their buckets. Called by their own thread, while no other thread reads them."""
        with self._latency_lock:
            add_latencies(row, latencies, _offset())
            latencies.clear()

    def record(self, payload: dict[str, Any], seconds: float, is_success: bool) -> None:
        """
        Count one attempt that raised.

        Args:
            payload: The parsed payload; an Active Job counts under the class that it wraps.
            seconds: How long it ran. Counted for successes only, because a failure may come at any point.
            is_success: True for an iterable job that was interrupted or stopped.
        """
        row = self._new_row(_name_of(payload.get("wrapped") or payload.get("class")), None)
        if is_success:
            add_run(row, seconds)
        else:
            row[FAILED] += 1

    def successes(self) -> list[Rows]:
        """The rows that `success_counter` has counted, one table per thread."""
        with self._latency_lock:
            return [
                {
                    queue: {job_class: self._with_latencies(row) for job_class, row in list(rows.items())}
                    for queue, rows in list(table.items())
                    if queue is not None
                }
                for table in list(self._tables)
            ]

    def _with_latencies(self, row: Row) -> Row:
        latencies = self._latencies.get(id(row))
        if latencies:
            # Its thread may append at the same time: those latencies come after the ones read here.
            read = latencies[:]
            del latencies[: len(read)]
            add_latencies(row, read, _offset())
        return row.copy()

    def attempts(self) -> dict[str, int]:
        """The number of attempts of each class since the process started."""
        return {job_class: int(sum(row[: FAILED + 1])) for job_class, row in self._totals().items()}

    def flush(self, pool: Pool, *, now: float, dialect: Dialect) -> None:
        """
        Write what was counted since the last flush, under the key names of the dialect's release.

        For a release without metrics (before 6.5.2) nothing is written: its UI has no page for them. If nothing is
        known about the readers, the dialect's own generation is written; the keys expire within hours.

        Args:
            now: Seconds since the epoch; everything counts in this minute, as in Ruby.

        Raises:
            RedisError: What was not written comes with the next flush. After a lost reply it counts as written, because
                counting twice would be worse than a missing count.
        """
        with self._flush_lock:
            totals = self._totals()
            changes = self._changes(totals)
            if changes and dialect.metrics_generation is not None:
                try:
                    add_counts(pool, changes, now=now, generation=dialect.metrics_generation)
                except ReplyLostError:
                    self._note_written(totals, changes)
                    raise
            self._note_written(totals, changes)

    def _table(self) -> _Table:
        """The calling thread's table. A new thread goes on with that of one that has ended, as after a resize."""
        table: _Table | None = getattr(self._mine, "table", None)
        if table is None:
            with self._table_lock:
                ended = [place for place, thread in enumerate(self._counting) if not thread.is_alive()]
                if ended:
                    table = self._tables[ended[0]]
                    self._counting[ended[0]] = threading.current_thread()
                else:
                    table = {}
                    self._tables.append(table)
                    self._counting.append(threading.current_thread())
            self._mine.table = table
        return table

    def _new_row(self, job_class: str, queue: str | None) -> Row:
        return self._table().setdefault(queue, {}).setdefault(job_class, run_times.new_row())

    def _totals(self) -> dict[str, Row]:
        totals: dict[str, Row] = {}
        for table in list(self._tables):
            for rows in list(table.values()):
                for job_class, row in list(rows.items()):
                    known = totals.get(job_class)
                    totals[job_class] = added(known, row) if known else row.copy()
        return totals

    def _note_written(self, totals: dict[str, Row], job_classes: Iterable[str]) -> None:
        # Only these classes: for a run that was read between its sum and its count, the time would be noted but never
        # written.
        self._written.update((job_class, totals[job_class]) for job_class in job_classes)

    def _changes(self, totals: dict[str, Row]) -> dict[str, ClassCounts]:
        changes: dict[str, ClassCounts] = {}
        for job_class, row in totals.items():
            before = self._written.get(job_class) or run_times.new_row()
            new = [a - b for a, b in zip(row[: FAILED + 1], before[: FAILED + 1], strict=True)]
            if any(new):
                # Rounded after summing: many short runs together take more than 0 ms.
                milliseconds = round(row[RUNTIME] * 1000) - round(before[RUNTIME] * 1000)
                changes[job_class] = ClassCounts(int(new[FAILED]), milliseconds, tuple(sidekiq_buckets(new)))
        return changes


def _name_of(job_class: Any) -> str:
    # A payload from elsewhere may have any value as its class, even a list.
    return job_class if isinstance(job_class, str) else display_text(job_class)


def _offset() -> float:
    """
    The time now in seconds since the epoch, minus the monotonic clock's.

    Reading the wall clock for every job cost as much as all else that is kept of its latency. When that clock is set,
    the latencies of the jobs since the last call are off by as much.
    """
    return now_seconds() - monotonic()
