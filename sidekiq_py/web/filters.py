"""The filter of a page of jobs: turns a form into a `JobFilter`, and into words."""

from datetime import UTC, datetime
from typing import NamedTuple

from sidekiq_py.api import JobFilter, JobRecord
from sidekiq_py.redaction import Redaction
from sidekiq_py.web.text import LONGEST_WANTED, ShownJob
from sidekiq_py.web.visit import Visit

_TIMES = (("after", "before"), ("failed-after", "failed-before"))
FIELDS = ("class", "queue", "tag", "argument", "error", *(name for pair in _TIMES for name in pair))
_VERBS = {
    **{"class": "class is", "queue": "queue is", "tag": "tag is", "argument": "argument has", "error": "error has"},
    **{"after": "time is not before", "before": "time is before"},
    **{"failed-after": "last failure is not before", "failed-before": "last failure is before"},
}


class PageFilter(NamedTuple):
    """
    The filter that a user has entered.

    Args:
        given: Field → text, for showing the form again; only the fields that are filled in.
        wanted: The same as a `JobFilter`, without the times of failures.
        failed: The times between which jobs must have failed last.
        troubles: Field → a sentence about what is wrong with it. With any, the filter must not be used: it would match
            more jobs than the user means.
    """

    given: dict[str, str]
    wanted: JobFilter
    failed: JobFilter
    troubles: dict[str, str]

    @property
    def is_empty(self) -> bool:
        """True if every job matches."""
        return not self.given

    @property
    def times(self) -> JobFilter:
        """The part of the filter that Redis can apply to a sorted set."""
        return JobFilter(after=self.wanted.after, before=self.wanted.before)

    @property
    def has_only_times(self) -> bool:
        """True if Redis can count the matches in a sorted set."""
        return self.wanted.has_only_times and self.failed.is_empty

    @property
    def in_words(self) -> str:
        """The filter in words: `class is HardWorker, error has Timeout`; empty if every job matches."""
        return ", ".join(f"{_VERBS[name]} {text}" for name, text in self.given.items())

    def fits(self, job: JobRecord, at: float | None, redaction: Redaction) -> bool:
        """
        True if a job matches. Only its visible values are compared: otherwise a search would reveal the hidden ones.

        Args:
            at: As for `JobFilter.fits`.
        """
        if not self.given:
            return True
        failed_at = job.retried_at or job.failed_at
        has_failed_in_time = self.failed.fits_time(None if failed_at is None else failed_at.timestamp())
        return has_failed_in_time and self.wanted.fits(ShownJob(job, redaction).redacted, at)


def filter_of(visit: Visit) -> PageFilter:
    """Read the filter from a page's address, or from the form that the page has sent."""
    given, troubles = {}, {}
    for name in FIELDS:
        text = (visit.field(name) if name in visit.form else visit.query(name)).strip()[:LONGEST_WANTED]
        if text:
            given[name] = text
    moments: dict[str, float] = {}
    for name in (name for pair in _TIMES for name in pair if name in given):
        at = _moment(given[name])
        if at is None:
            troubles[name] = f"“{given[name]}” is not a time. Write it as 2026-02-14 09:30, in UTC."
        else:
            moments[name] = at
    for first, last in _TIMES:
        if first in moments and last in moments and moments[last] <= moments[first]:
            troubles[last] = "No job can match: this must be later than the time before it."
    wanted = JobFilter(
        job_class=given.get("class"),
        queue=given.get("queue"),
        tag=given.get("tag"),
        argument=given.get("argument"),
        error=given.get("error"),
        after=moments.get("after"),
        before=moments.get("before"),
    )
    failed = JobFilter(after=moments.get("failed-after"), before=moments.get("failed-before"))
    return PageFilter(given, wanted, failed, troubles)


def _moment(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
