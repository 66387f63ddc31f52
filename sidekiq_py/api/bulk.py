"""Process many entries at once, at a limited pace, and count the results."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sidekiq_py.api.arguments import is_number
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.clock import monotonic
from sidekiq_py.redis_access.connection.slices import lists_of
from sidekiq_py.redis_access.job_path.promote import Moved

T = TypeVar("T")
J = TypeVar("J", bound=JobRecord)

_KEPT_ERRORS = 100
_SLICE_JOBS = 100
# At a limited pace, this many slices per second, so that progress is smooth and a stop takes effect soon.
_SLICES_PER_SECOND = 10

# A pause between two slices checks for a stop at least this often.
_LOOK_SECONDS = 0.2

Progress = Callable[[int], None]
"""Called after each slice with the number of entries processed so far."""

Stop = Callable[[], bool]
"""Called before each slice. If it returns True, the remaining entries stay as they are."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """
    The result of a bulk action.

    Args:
        moved: The number of entries that this call moved or deleted.
        gone: The number of entries that were no longer in the set when their turn came: another process had taken them,
            or the connection broke after this call had moved them.
        refused: The number of entries that could not be moved and stay where they are.
        errors: The first 100 of the refused entries, with the reason.
    """

    moved: int
    gone: int
    refused: int
    errors: tuple[tuple[JobRecord, Exception], ...]


class Tally:
    """Counts the results of a bulk action."""

    def __init__(self, progress: Progress | None) -> None:
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is {progress!r}; give a function that takes the number of jobs done so far")
        self._progress = progress
        self.moved = self.gone = self.refused = 0
        self._errors: list[tuple[JobRecord, Exception]] = []

    def count(self, entry: JobRecord, result: Moved) -> None:
        """Count the result of a move."""
        if result.refusal is not None:
            self.refuse(entry, result.refusal)
        elif result.done:
            self.moved += 1
        else:
            self.gone += 1

    def refuse(self, entry: JobRecord, error: Exception) -> None:
        """Count an entry that stays."""
        self.refused += 1
        if len(self._errors) < _KEPT_ERRORS:
            self._errors.append((entry, error))

    def report(self) -> None:
        """Report the progress to the caller."""
        if self._progress is not None:
            self._progress(self.moved + self.gone + self.refused)

    def result(self) -> BulkResult:
        """The counts."""
        return BulkResult(self.moved, self.gone, self.refused, tuple(self._errors))


def slices(
    entries: Iterable[T],
    per_second: float | None,
    stop: Stop | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[T]]:
    """
    Yield the entries in slices, one for each round trip.

    Args:
        per_second: The most entries per second, kept by waiting between slices; None for no limit.
        stop: Called before each slice and during the pauses; True ends the iteration.

    Raises:
        ValueError: *per_second* is not a number above 0.
    """
    if per_second is not None and not (is_number(per_second) and per_second > 0):
        raise ValueError(f"per_second is {per_second!r}; give how many jobs a second, more than 0, or None")
    pace = None if per_second is None else float(per_second)
    size = _SLICE_JOBS if pace is None else max(1, min(_SLICE_JOBS, int(pace / _SLICES_PER_SECOND)))
    began, done = monotonic(), 0
    for part in lists_of(entries, size):
        pause = began + done / pace - monotonic() if pace is not None and done else 0.0
        while pause > 0 and not (stop is not None and stop()):
            sleep(min(pause, _LOOK_SECONDS))
            pause -= _LOOK_SECONDS
        if stop is not None and stop():
            return
        yield part
        done += len(part)


def each_of(kind: type[J], jobs: Iterable[J]) -> Iterator[J]:
    """
    Yield the jobs of a bulk action.

    Raises:
        TypeError: One of them is not a *kind*, such as a job's id, or *jobs* is a single job.
    """
    hint = f"pass a list of {kind.__name__} objects, as find() yields them"
    if not isinstance(jobs, Iterable):
        raise TypeError(f"{jobs!r} is not a list of jobs; {hint}")
    for job in jobs:
        if not isinstance(job, kind):
            raise TypeError(f"{job!r} is not a {kind.__name__}; {hint}")
        yield job
