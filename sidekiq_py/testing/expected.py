"""Which jobs an assertion matches, and the message if it fails."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import NoneType
from typing import Any

from sidekiq_py.registry import JobDefinition
from sidekiq_py.testing.enqueued_job import EnqueuedJob, utc_text
from sidekiq_py.wire.payload import LEAST_MOMENT

_SHOWN = 10

# No list equals one of these, so `refute_enqueued` would always pass.
_NO_LISTS = (str, bytes, int, float, Mapping, NoneType)


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
"""Matches anything."""


def name_of(job: Any) -> str:
    """
    The class name of a declared job, a job class or an Active Job; a string is returned as it is.

    Raises:
        TypeError: *job* is none of these.
    """
    if isinstance(job, str):
        return job
    definition = getattr(job, "__sidekiq_job__", None) or getattr(job, "definition", None)
    if isinstance(definition, JobDefinition):
        return definition.name
    raise TypeError(f"{job!r} is not a job; give a declared job, a job class or the class's name")


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected job; its fields are those of `assert_enqueued`."""

    job: Any = None
    args: Any = ANY
    queue: Any = ANY
    at: Any = ANY
    tolerance_seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.job is not None:
            name_of(self.job)
        if isinstance(self.args, _NO_LISTS):
            raise TypeError(f"args is {self.args!r}; give a list of all arguments, as in args=[{self.args!r}]")
        if self.at is not ANY and self.at is not None and self.at is not True:
            _epoch_seconds(self.at)

    def fits(self, enqueued: EnqueuedJob) -> bool:
        """True if *enqueued* matches."""
        return self._is_named(enqueued) and not self._differences(enqueued)

    def __str__(self) -> str:
        parts = ["job" if self.job is None else name_of(self.job)]
        if self.args is not ANY:
            parts.append(f"with args {self.args!r}")
        if self.queue is not ANY:
            parts.append(f"on queue {self.queue!r}")
        if self.at is not ANY:
            parts.append({None: "for now", True: "for later"}.get(self.at) or f"due {self._moment_text()}")
        return " ".join(parts)

    def complaint(self, found: list[EnqueuedJob], count: int | None, everything: list[EnqueuedJob]) -> str:
        """The message of a failed assertion: how many jobs match, and how others of the same class differ."""
        number = f"{len(found)}" if found else "no"
        wanted = "" if count is None else f", expected {count}"
        near = [enqueued for enqueued in everything if self._is_named(enqueued)]
        lines = [f"{number} {self} {'is' if len(found) < 2 else 'are'} enqueued{wanted}."]
        if near:
            lines.append("Of this class:" if self.job is not None else "Enqueued:")
            lines += [f"  {job.line}{self._but(job)}" for job in near[:_SHOWN]]
        others = [enqueued for enqueued in everything if not self._is_named(enqueued)]
        if others:
            lines.append(f"Of other classes ({len(others)}): {', '.join(sorted({job.job_class for job in others}))}")
        if not everything:
            lines.append("No job is enqueued at all.")
        return "\n".join(lines)

    def _is_named(self, enqueued: EnqueuedJob) -> bool:
        return self.job is None or name_of(self.job) in (enqueued.payload.get("wrapped"), enqueued.payload["class"])

    def _differences(self, enqueued: EnqueuedJob) -> list[str]:
        differences = []
        if self.args is not ANY and not _equal(self.args, enqueued.args):
            differences.append("args")
        if self.queue is not ANY and self.queue != enqueued.queue:
            differences.append("queue")
        if self.at is not ANY and not self._is_due(enqueued.at):
            differences.append("at")
        return differences

    def _but(self, enqueued: EnqueuedJob) -> str:
        differences = self._differences(enqueued)
        return f"  <- {' and '.join(differences)} differ" if differences else ""

    def _is_due(self, at: float | None) -> bool:
        if self.at is None or self.at is True:
            return (at is not None) == (self.at is True)
        return at is not None and abs(at - _epoch_seconds(self.at)) <= self.tolerance_seconds

    def _moment_text(self) -> str:
        return f"{utc_text(_epoch_seconds(self.at))} (±{self.tolerance_seconds:g} s)"


def _equal(wanted: Any, args: list[Any]) -> bool:
    # Accept a tuple in place of a list, because enqueued arguments are always a list.
    return bool(list(wanted) == args) if isinstance(wanted, tuple) else bool(wanted == args)


def _epoch_seconds(at: Any) -> float:
    if isinstance(at, timedelta):
        return time.time() + at.total_seconds()
    if isinstance(at, datetime) and at.tzinfo is not None:
        return at.timestamp()
    if isinstance(at, (int, float)) and at is not False:
        return time.time() + at if at < LEAST_MOMENT else float(at)
    raise TypeError(f"at is {at!r}; give an aware datetime, epoch seconds, a timedelta, None or True")
