"""
Metrics of the jobs that this process has run, by job class and queue. The engine counts successes; failures are counted
from telemetry events.

The names, the labels `queue` and `worker` (the job's class) and the bounds of the histograms are those of
yabeda-sidekiq.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time

import orjson

from sidekiq_py import telemetry
from sidekiq_py.engine.run import run_times
from sidekiq_py.engine.run.run_times import (
    BUCKETS,
    FAILED,
    FIRST_LATENCY,
    LATENCY,
    PROMETHEUS_BOUNDS,
    ROW_LENGTH,
    RUNTIME,
    Row,
    Rows,
    prometheus_buckets,
)
from sidekiq_py.errors import JobNotFoundError
from sidekiq_py.metrics.text import Family, Sample, histogram_samples, label
from sidekiq_py.telemetry import JOB_EXCEPTION, Measurements
from sidekiq_py.wire.json_writer import display_text

MOST_SERIES = 500
"""How many pairs of class and queue are kept apart. Each pair has some 40 lines, and any program may push any class."""

OTHER = ("other", "other")

_EXCEPTIONS = "sidekiq_py.metrics: jobs that raise"

Key = tuple[str, str]
Counts = dict[Key, Row]


class JobMetrics:
    """
    The counts of one process.

    Args:
        most_series: How many pairs of class and queue are kept apart; the rest are counted as `other`.
    """

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._lock = threading.Lock()
        self._failures: dict[str, dict[str, Row]] = {}
        self._workers: list[Callable[[], list[Rows]]] = []
        # A pair that is known stays known, so that no counter ever decreases.
        self._known: set[Key] = set()

    def __repr__(self) -> str:
        return f"<JobMetrics series={len(self._known)}>"

    def attach(self) -> None:
        """Start to count what workers of this process run that are created after this call."""
        telemetry.attach(_EXCEPTIONS, JOB_EXCEPTION.name, self._count_failure)
        run_times.keep(self._workers.append)

    def detach(self) -> None:
        """Stop counting."""
        telemetry.detach(_EXCEPTIONS)
        run_times.keep(None)

    def counts(self) -> Counts:
        """The counts so far."""
        with self._lock:
            parts = [rows for successes in self._workers for rows in successes()]
            totals: Counts = {}
            for by_queue in (*parts, self._failures):
                for queue, rows in by_queue.items():
                    for job_class, row in rows.items():
                        key = self._place(job_class, queue)
                        totals[key] = run_times.added(totals[key], row) if key in totals else row.copy()
            return totals

    def _count_failure(self, name: str, measurements: Measurements) -> None:
        payload, error = measurements["payload"], measurements["error"]
        # A program may push any class name. Undeclared names would use up the series of classes that run.
        is_declared = not isinstance(error, JobNotFoundError)
        given = (payload.get("wrapped") or payload["class"]) if is_declared else OTHER[0]
        job_class = given if isinstance(given, str) else display_text(given)
        with self._lock:
            rows = self._failures.setdefault(measurements["queue"], {})
            row = rows.setdefault(job_class, run_times.new_row())
            if measurements["is_failure"]:
                # A job interrupted by a shutdown runs again, so it is neither a success nor a failure.
                row[FAILED] += 1
                run_times.add_run(row, measurements["seconds"])
                latency = telemetry.latency_seconds(payload, time() - measurements["seconds"])
                run_times.add_latencies(row, () if latency is None else (latency,))

    def _place(self, job_class: str, queue: str) -> Key:
        key = (label(job_class), label(queue))
        if key not in self._known:
            if len(self._known) >= self._most_series:
                return OTHER
            self._known.add(key)
        return key


def summed(tables: Iterable[Mapping[Key, Row]], most_series: int = MOST_SERIES) -> Counts:
    """The sum of the counts of several threads or processes. Pairs beyond *most_series* are counted as `other`."""
    totals: Counts = {}
    for table in tables:
        for key, row in list(table.items()):
            place = key if key in totals or len(totals) < most_series else OTHER
            before = totals.get(place)
            totals[place] = run_times.added(before, row) if before else row.copy()
    return totals


def as_text(counts: Counts) -> str:
    """*counts* as one line, for another process."""
    return orjson.dumps([[*_sound(key), row] for key, row in counts.items()]).decode()


def from_text(text: str) -> Counts:
    """
    Parse the counts that `as_text` has written.

    Raises:
        ValueError: *text* is not such a line.
    """
    return {(job_class, queue): row for job_class, queue, row in orjson.loads(text) if len(row) == ROW_LENGTH}


def families(counts: Counts) -> list[Family]:
    """The metric families that `/metrics` shows."""
    labelled = [({"queue": queue, "worker": job_class}, row) for (job_class, queue), row in sorted(counts.items())]
    executed = [(labels, int(sum(row[:BUCKETS])), int(row[FAILED])) for labels, row in labelled]
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
            [one for labels, row in labelled for one in _histogram(labels, prometheus_buckets(row), row[RUNTIME])],
        ),
        Family(
            "sidekiq_job_latency_seconds",
            "histogram",
            "How long jobs waited since they were last enqueued.",
            [one for labels, row in labelled for one in _histogram(labels, row[FIRST_LATENCY:], row[LATENCY])],
        ),
    ]


def start_family(at: float) -> Family:
    """
    When this worker started, in epoch seconds.

    The counts alone don't tell that it has restarted, because it has none until it has run a job.
    """
    return Family("sidekiq_worker_start_time_seconds", "gauge", "When this worker started.", [Sample({}, at)])


def _histogram(labels: Mapping[str, str], counts: Sequence[float], total: float) -> list[Sample]:
    return list(histogram_samples(labels, PROMETHEUS_BOUNDS, [int(count) for count in counts], float(total)))


def _sound(key: Key) -> tuple[str, str]:
    job_class, queue = (part.encode("utf-8", "replace").decode() for part in key)
    return job_class, queue
