"""A filter that selects jobs, as a value: used by lists, bulk actions, the command line and the dashboard."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from sidekiq_py.api.bulk import Progress, Stop
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.wire.json_writer import json_text

J = TypeVar("J", bound=JobRecord)

# Reporting the progress of a search takes longer than looking at a job.
_LOOKED_AT_AT_ONCE = 200


@dataclass(frozen=True)
class JobFilter:
    """
    Selects the jobs that match every given criterion; without any, all jobs.

        RetrySet().find(JobFilter(job_class="HardWorker", error="Timeout"))

    Args:
        job_class: The class, as the payload names it or as it is shown: for Active Job, the job's own class or its
            wrapper.
        queue: The queue's name.
        argument: A text that occurs in the arguments, written as JSON as they are shown.
        text: A text that occurs in the payload, byte for byte.
        error: A text that occurs in `Class: message` of the last error, ignoring case.
        after: This time or later: an aware datetime, or epoch seconds. A job's time is when it is due (in the dead set,
            when it died; in a queue, when it was enqueued; for a running job, when it started).
        before: Earlier than this time.
        tag: One of the job's tags.

    Raises:
        TypeError: A text is not a string.
        ValueError: A time has no time zone, or is not a time.
    """

    job_class: str | None = None
    queue: str | None = None
    argument: str | None = None
    text: str | None = None
    error: str | None = None
    after: float | datetime | None = None
    before: float | datetime | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        for name in ("job_class", "queue", "argument", "text", "error", "tag"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}; a JobFilter compares text, so give a string")
        for name in ("after", "before"):
            value = getattr(self, name)
            if isinstance(value, datetime):
                if value.tzinfo is None:
                    raise ValueError(
                        f"{name} is {value!r}, which has no time zone; give an aware time or epoch seconds"
                    )
                object.__setattr__(self, name, value.timestamp())
            elif value is not None and not isinstance(value, (int, float)):
                raise ValueError(f"{name} is {value!r}; give an aware datetime or epoch seconds")

    @property
    def is_empty(self) -> bool:
        """True if every job matches."""
        return self == JobFilter()

    @property
    def has_only_times(self) -> bool:
        """True if the matches in a sorted set can be counted without reading its jobs."""
        return self == JobFilter(after=self.after, before=self.before)

    @property
    def earliest(self) -> float | None:
        """`after` in epoch seconds."""
        return self.after  # type: ignore[return-value]

    @property
    def latest(self) -> float | None:
        """`before` in epoch seconds."""
        return self.before  # type: ignore[return-value]

    def fits(self, job: JobRecord, at: float | None) -> bool:
        """
        True if *job* matches.

        Args:
            at: The job's time in epoch seconds; a job without a time matches no filter with `after` or `before`.
        """
        return (
            self.fits_time(at)
            and (self.queue is None or job.queue == self.queue)
            and (self.job_class is None or self.job_class in (job.klass, job.display_class))
            and (self.tag is None or self.tag in job.tags)
            and (self.text is None or self._text_bytes in job.value)
            and (self.error is None or self._has_error(job, self.error))
            and (self.argument is None or self.argument in json_text(job.display_args))
        )

    @cached_property
    def _text_bytes(self) -> bytes:
        return (self.text or "").encode(errors="surrogateescape")

    def fits_time(self, at: float | None) -> bool:
        """True if *at*, in epoch seconds, is within the times; None is only if there are none."""
        if self.earliest is None and self.latest is None:
            return True
        if at is None:
            return False
        return (self.earliest is None or at >= self.earliest) and (self.latest is None or at < self.latest)

    def _has_error(self, job: JobRecord, wanted: str) -> bool:
        if job.error_class is None and job.error_message is None:
            return False
        return wanted.casefold() in f"{job.error_class}: {job.error_message}".casefold()


def must_be_filter(wanted: object) -> None:
    """
    Check what a `find` was given.

    Raises:
        TypeError: It is not a `JobFilter`, such as a job's id.
    """
    if not isinstance(wanted, JobFilter):
        raise TypeError(f"{wanted!r} is not a JobFilter; queues and sets find a job by its id with find_job")


def search(
    jobs: Iterable[J],
    wanted: JobFilter,
    time_of: Callable[[J], float | None],
    *,
    looked_at: Progress | None,
    stop: Stop | None,
) -> Iterator[J]:
    """
    Yield the matching jobs.

    Args:
        time_of: The time of a job that the filter compares, in epoch seconds.
        looked_at: Called now and then with the number of jobs looked at so far.
        stop: Called as often; if it returns True, the search ends.
    """
    number = 0
    for number, job in enumerate(jobs, 1):
        if number % _LOOKED_AT_AT_ONCE == 0:
            if looked_at is not None:
                looked_at(number)
            if stop is not None and stop():
                return
        if wanted.fits(job, time_of(job)):
            yield job
    if looked_at is not None:
        looked_at(number)
