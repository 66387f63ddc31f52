"""
How often each job class ran, failed, and how long it took: what the Web UI's Metrics page shows.

Each thread counts in a table of its own that only ever grows, so a job costs no lock; a flush adds the tables up and
writes what has come since the last one.

Source: Sidekiq 7.3.2 and 8.1.7, metrics/tracking.rb.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from sidekiq_py.engine.run import run_times
from sidekiq_py.errors import ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes.metrics import ClassCounts, add_counts
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_writer import display_text
from sidekiq_py.wire.metrics_keys import BUCKET_BOUNDS_MS

_BUCKETS = len(BUCKET_BOUNDS_MS)
_FIRST_BOUND_MS = BUCKET_BOUNDS_MS[0]
# A row: the counts of the buckets, then these two.
_FAILED = _BUCKETS
_MILLISECONDS = _BUCKETS + 1
_ROW_LENGTH = _BUCKETS + 2

_Row = list[int]
_Table = dict[str, _Row]
_Rows = tuple[_Row, run_times.Row | None]

CountSuccess = Callable[[dict[str, Any], str, float], None]
"""Counts one success: payload as parsed, queue, how long it ran."""


class ExecutionMetrics:
    """The counts of one process."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._tables: list[_Table] = []
        self._written: dict[str, _Row] = {}
        self._flush_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ExecutionMetrics classes={len(self._totals())}>"

    def success_counter(self) -> CountSuccess:
        """
        `record` for the successes of one thread, at less than its cost, as it is on every job's way.

        Fills the rows of `run_times`, too, if somebody keeps them.
        """
        rows: dict[str, dict[str, _Rows]] = {}
        new_row, new_times = self._new_row, run_times.keeper()
        first_bound, bounds, add_times = _FIRST_BOUND_MS, BUCKET_BOUNDS_MS, run_times.add

        def both_rows(job_class: Any, queue: str) -> _Rows:
            # A payload from elsewhere may name anything, a list too.
            name = job_class if isinstance(job_class, str) else display_text(job_class)
            times = None if new_times is None else new_times(job_class, queue)
            return rows.setdefault(queue, {}).setdefault(name, (new_row(job_class), times))

        def count(payload: dict[str, Any], queue: str, seconds: float) -> None:
            job_class = payload["class"]
            if "wrapped" in payload:
                job_class = payload["wrapped"] or job_class
            try:
                row, times = rows[queue][job_class]
            except (KeyError, TypeError):
                row, times = both_rows(job_class, queue)
            milliseconds = int(seconds * 1000)
            row[_MILLISECONDS] += milliseconds
            row[0 if milliseconds < first_bound else bisect_right(bounds, milliseconds)] += 1
            if times is not None:
                add_times(times, payload, seconds)

        return count

    def record(self, payload: dict[str, Any], seconds: float, is_success: bool) -> None:
        """
        Count one attempt.

        Args:
            payload: As parsed; an Active Job counts under the class that it wraps.
            seconds: How long it ran; counted for successes, as a failure may end at any point.
            is_success: Also for an iterable job that was interrupted.
        """
        job_class = payload.get("wrapped") or payload["class"]
        try:
            row = self._mine.table[job_class]
        except (AttributeError, KeyError, TypeError):
            row = self._new_row(job_class)
        if is_success:
            milliseconds = int(seconds * 1000)
            row[_MILLISECONDS] += milliseconds
            row[0 if milliseconds < _FIRST_BOUND_MS else bisect_right(BUCKET_BOUNDS_MS, milliseconds)] += 1
        else:
            row[_FAILED] += 1

    def attempts(self) -> dict[str, int]:
        """How often each class was tried since the process started."""
        return {job_class: sum(row[:_MILLISECONDS]) for job_class, row in self._totals().items()}

    def flush(self, pool: Pool, *, now: float, dialect: Dialect) -> None:
        """
        Write what has come since the last flush, under the names of the dialect's release.

        A release that has no metrics (before 6.5.2) gets none: its UI has no page for them. Where nothing is known of
        the readers, the dialect's own generation is written; the keys expire within hours.

        Args:
            now: Seconds since the epoch: the minute under which everything counts, as in Ruby.

        Raises:
            RedisError: What was not written comes with the next flush; after a lost reply it is taken for written, as
                a count twice would be worse than a count that is missing.
        """
        with self._flush_lock:
            totals = self._totals()
            changes = self._changes(totals)
            if changes and dialect.metrics_generation is not None:
                try:
                    add_counts(pool, changes, now=now, generation=dialect.metrics_generation)
                except ReplyLostError:
                    self._written = totals
                    raise
            self._written = totals

    def _table(self) -> _Table:
        """The calling thread's."""
        table: _Table | None = getattr(self._mine, "table", None)
        if table is None:
            table = self._mine.table = {}
            self._tables.append(table)
        return table

    def _new_row(self, job_class: Any) -> _Row:
        # A payload from elsewhere may name anything, a list too.
        return self._table().setdefault(
            job_class if isinstance(job_class, str) else display_text(job_class), [0] * _ROW_LENGTH
        )

    def _totals(self) -> dict[str, _Row]:
        totals: dict[str, _Row] = {}
        for table in list(self._tables):
            for job_class, row in list(table.items()):
                known = totals.get(job_class)
                totals[job_class] = [a + b for a, b in zip(known, row, strict=True)] if known else row.copy()
        return totals

    def _changes(self, totals: dict[str, _Row]) -> dict[str, ClassCounts]:
        changes: dict[str, ClassCounts] = {}
        for job_class, row in totals.items():
            before = self._written.get(job_class)
            new = [a - b for a, b in zip(row, before, strict=True)] if before else row
            if any(new):
                changes[job_class] = ClassCounts(new[_FAILED], new[_MILLISECONDS], tuple(new[:_BUCKETS]))
        return changes
