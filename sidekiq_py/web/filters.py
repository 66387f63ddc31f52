"""The filter of a page of jobs: turns a form into a `JobFilter`, and into words."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sidekiq_py.api import JobFilter, JobRecord
from sidekiq_py.redaction import Redaction
from sidekiq_py.web.text import ShownJob
from sidekiq_py.web.visit import Visit

FIELDS = ("class", "queue", "argument", "error", "after", "before")
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class PageFilter:
    """
    The filter that a user has entered.

    Args:
        given: Field → text, for showing the form again; only the fields that are filled in.
        wanted: The same as a `JobFilter`.
        troubles: Field → a sentence about what is wrong with it. With any, the filter must not be used: it would match
            more jobs than the user means.
    """

    given: dict[str, str]
    wanted: JobFilter
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
    def in_words(self) -> str:
        """The filter in words: `class is HardWorker, error has Timeout`; empty if every job matches."""
        verbs = {"class": "is", "queue": "is", "argument": "has", "error": "has", "after": "is", "before": "is"}
        return ", ".join(f"{name} {verbs[name]} {text}" for name, text in self.given.items())

    def fits(self, job: JobRecord, at: float | None, redaction: Redaction) -> bool:
        """
        True if a job matches. Only its visible values are compared: otherwise a search would reveal the hidden ones.

        Args:
            at: As for `JobFilter.fits`.
        """
        if not self.given:
            return True
        return self.wanted.fits(ShownJob(job, redaction).redacted, at)


def filter_of(visit: Visit) -> PageFilter:
    """Read the filter from a page's address, or from the form that the page has sent."""
    given, troubles = {}, {}
    for name in FIELDS:
        text = (visit.field(name) if name in visit.form else visit.query(name)).strip()[:_LONGEST]
        if text:
            given[name] = text
    moments: dict[str, float] = {}
    for name in ("after", "before"):
        if name in given:
            at = _moment(given[name])
            if at is None:
                troubles[name] = f"“{given[name]}” is not a time. Write it as 2026-02-14 09:30, in UTC."
            else:
                moments[name] = at
    if len(moments) == 2 and moments["before"] <= moments["after"]:
        troubles["before"] = "No job can match: this must be later than the time before it."
    wanted = JobFilter(
        job_class=given.get("class"),
        queue=given.get("queue"),
        argument=given.get("argument"),
        error=given.get("error"),
        after=moments.get("after"),
        before=moments.get("before"),
    )
    return PageFilter(given, wanted, troubles)


def _moment(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
