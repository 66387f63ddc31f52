"""How often and how long jobs of each class ran recently, and when the program was deployed."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Any

from sidekiq_py.api.source import OfRedis
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.reads import metrics_query

MAX_MINUTES = 480
MAX_HOURS = 72
_DEFAULT_MINUTES = 60


@dataclass(slots=True)
class MetricsPoint:
    """
    The jobs of one class in one minute or in ten minutes.

    Args:
        processed: Attempts that ended, including those that failed.
        failed: Attempts that raised.
        ms: The total time of those that succeeded, in milliseconds.
    """

    processed: int = 0
    failed: int = 0
    ms: int = 0

    @property
    def average_ms(self) -> float:
        """The average duration of a successful attempt in milliseconds; 0.0 if there was none."""
        succeeded = self.processed - self.failed
        return self.ms / succeeded if succeeded > 0 else 0.0


@dataclass(slots=True)
class JobMetrics:
    """
    The metrics of one class.

    Args:
        series: Maps the start of each minute (or ten minutes) in which a job ran to its numbers.
        histograms: Maps the start of each minute to the number of successful attempts in each bucket of
            `wire.metrics_keys.BUCKET_BOUNDS_MS`. Filled only by `Metrics.for_job`.
    """

    job_class: str
    series: dict[datetime, MetricsPoint] = field(default_factory=dict)
    histograms: dict[datetime, list[int]] = field(default_factory=dict)

    @property
    def total(self) -> MetricsPoint:
        """The sums over the whole series."""
        points = self.series.values()
        return MetricsPoint(sum(p.processed for p in points), sum(p.failed for p in points), sum(p.ms for p in points))


@dataclass(frozen=True, slots=True)
class DeployMark:
    """A deploy: its time and label."""

    at: datetime
    label: str


@dataclass(frozen=True, slots=True)
class MetricsResult:
    """
    The result of a `Metrics` query.

    Args:
        starts_at: The start of the oldest bucket.
        ends_at: The time of the query.
        bucket_seconds: 60, or 600.
        jobs: Maps each class name to its metrics.
        marks: The deploys in that time, oldest first.
    """

    starts_at: datetime
    ends_at: datetime
    bucket_seconds: int
    jobs: Mapping[str, JobMetrics]
    marks: tuple[DeployMark, ...]


class Metrics(OfRedis):
    """
    Execution metrics as Sidekiq 7 and 8 write them; older releases have none. Both formats are read and added up.

    Args:
        now: Epoch seconds; the current time by default.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, *, now: float | None = None, pool: Any = None, client: Client | None = None) -> None:
        super().__init__(pool=pool, client=client)
        self._now = now_seconds() if now is None else now

    def top_jobs(
        self,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        class_filter: "str | re.Pattern[str] | None" = None,
    ) -> MetricsResult:
        """
        The metrics of all classes by minute, or with *hours* by ten minutes.

        Args:
            minutes: Up to 480; 60 if neither is given.
            hours: Up to 72.
            class_filter: A pattern to search for in the class's name.
        """
        starts, width = _buckets(self._now, minutes, hours)
        pattern = re.compile(class_filter) if class_filter else None
        return self._result(starts, width, self._jobs(starts, width, pattern))

    def totals(self, *, minutes: int | None = None, hours: int | None = None) -> list[tuple[datetime, MetricsPoint]]:
        """
        The sums over all classes by minute, or with *hours* by ten minutes, oldest first.

        Args:
            minutes: As for `top_jobs`.
            hours: As for `top_jobs`.
        """
        starts, width = _buckets(self._now, minutes, hours)
        read = metrics_query.minutes if width == 60 else metrics_query.ten_minutes
        points = []
        for start, counts in zip(map(_utc, starts), read(self._pool, starts), strict=True):
            total = JobMetrics("")
            for name, value in counts.items():
                _add(total, start, name.rpartition("|")[2], value)
            points.append((start, total.total))
        return points[::-1]

    def for_job(self, job_class: str, *, minutes: int | None = None, hours: int | None = None) -> MetricsResult:
        """The metrics of one class; by minute, with a histogram of its durations."""
        starts, width = _buckets(self._now, minutes, hours)
        jobs = self._jobs(starts, width, only=job_class)
        job = jobs.get(job_class) or JobMetrics(job_class)
        if width == 60:
            histograms = metrics_query.histograms(self._pool, job_class, starts)
            job.histograms = {_utc(start): counts for start, counts in zip(starts, histograms, strict=True)}
        return self._result(starts, width, {job_class: job})

    def _jobs(
        self, starts: list[int], width: int, pattern: "re.Pattern[str] | None" = None, *, only: str | None = None
    ) -> dict[str, JobMetrics]:
        read = metrics_query.minutes if width == 60 else metrics_query.ten_minutes
        jobs: dict[str, JobMetrics] = {}
        for start, counts in zip(map(_utc, starts), read(self._pool, starts, only), strict=True):
            for name, value in counts.items():
                job_class, _, metric = name.rpartition("|")
                if pattern is None or pattern.search(job_class):
                    _add(jobs.setdefault(job_class, JobMetrics(job_class)), start, metric, value)
        return jobs

    def _result(self, starts: list[int], width: int, jobs: Mapping[str, JobMetrics]) -> MetricsResult:
        first = _utc(starts[-1])
        days = sorted({start - start % 86400 for start in starts})
        marks = [mark for day in metrics_query.marks(self._pool, days) for mark in _marks(day)]
        recent = sorted((mark for mark in marks if first <= mark.at <= _utc(self._now)), key=lambda mark: mark.at)
        return MetricsResult(first, _utc(self._now), width, jobs, tuple(recent))


class Deploy(OfRedis):
    """
    Marks of deploys, so that the metrics show what a release changed.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def mark(self, label: str | None = None, *, at: datetime | None = None) -> bool:
        """
        Record a deploy.

        Args:
            label: What was deployed; by default the current commit, from `git log`.
            at: An aware datetime; now by default.

        Returns:
            False if a deploy with this label was recorded within the last minute, by another machine of the same
            deploy.

        Raises:
            ConfigError: There is no label and no commit to take one from.
            ValueError: *at* is not an aware datetime.
        """
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise ValueError(f"at is {at!r}; give an aware datetime, like datetime.now(UTC)")
        moment = (at or _utc(now_seconds())).astimezone(UTC).replace(second=0, microsecond=0)
        stamp = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        return metrics_query.mark(self._pool, label or _commit_label(), stamp, moment.timestamp())

    def fetch(self, day: date | None = None) -> dict[str, str]:
        """The deploys of a UTC day (today by default): maps each time in ISO 8601 to its label."""
        start = _utc(now_seconds()).date() if day is None else day
        noon = int(datetime.combine(start, time(12), UTC).timestamp())
        return metrics_query.marks(self._pool, [noon])[0]


def _buckets(now: float, minutes: int | None, hours: int | None) -> tuple[list[int], int]:
    """The starts of the buckets to read, latest first, and their width in seconds. The limits are Ruby's."""
    for name, value in (("minutes", minutes), ("hours", hours)):
        if value is not None and not isinstance(value, int):
            raise ValueError(f"{name} is {value!r}; give a whole number")
    if hours is not None:
        count, width = min(hours, MAX_HOURS) * 6, 600
    else:
        wanted = minutes or _DEFAULT_MINUTES
        count, width = (wanted if wanted <= MAX_MINUTES else _DEFAULT_MINUTES), 60
    latest = int(now) - int(now) % width
    return [latest - width * back for back in range(max(count, 1))], width


def _add(job: JobMetrics, start: datetime, metric: str, value: int) -> None:
    point = job.series.get(start) or job.series.setdefault(start, MetricsPoint())
    if metric == "p":
        point.processed += value
    elif metric == "f":
        point.failed += value
    elif metric == "ms":
        point.ms += value


def _marks(day: Mapping[str, str]) -> list[DeployMark]:
    found = []
    for stamp, label in day.items():
        try:
            at = datetime.fromisoformat(stamp)
        except ValueError:
            continue
        # Without a zone it was written by another program, and nobody knows which moment it means.
        if at.tzinfo is not None:
            found.append(DeployMark(at, label))
    return found


def _commit_label() -> str:
    try:
        shown = subprocess.run(["git", "log", "-1", "--format=%h %s"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError("there is no git commit here to name the deploy after; give a label") from None
    return shown.stdout.strip()


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
