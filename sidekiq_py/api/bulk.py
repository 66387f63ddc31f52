"""What becomes of many entries that are moved at once."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.clock import monotonic
from sidekiq_py.redis_access.job_path.promote import Moved

T = TypeVar("T")

_KEPT_ERRORS = 100
_SLICE_JOBS = 100
# At a pace, so many slices a second: what is watched goes smoothly, and what is stopped stops soon.
_SLICES_PER_SECOND = 10

# A pause between two slices is no longer than this without a look whether to stop.
_LOOK_SECONDS = 0.2

Progress = Callable[[int], None]
"""Called after each slice with the number of entries dealt with so far."""

Stop = Callable[[], bool]
"""Asked before each slice; where it says True, what was not dealt with yet stays as it is."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """
    What became of many entries.

    Args:
        moved: How many this call moved, or deleted.
        gone: How many were no longer in the set when their turn came: somebody else had them, or the connection broke
            after this call had moved them.
        refused: How many could not be moved and stay where they are.
        errors: The first 100 of those, with the reason.
    """

    moved: int
    gone: int
    refused: int
    errors: tuple[tuple[JobRecord, Exception], ...]


class Tally:
    """Counts what becomes of many entries."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.moved = self.gone = self.refused = 0
        self._errors: list[tuple[JobRecord, Exception]] = []

    def count(self, entry: JobRecord, result: Moved) -> None:
        """Take in what a move came to."""
        if result.refusal is not None:
            self.refuse(entry, result.refusal)
        elif result.done:
            self.moved += 1
        else:
            self.gone += 1

    def refuse(self, entry: JobRecord, error: Exception) -> None:
        """Take in one that stays."""
        self.refused += 1
        if len(self._errors) < _KEPT_ERRORS:
            self._errors.append((entry, error))

    def report(self) -> None:
        """Tell the caller how far it is."""
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
    The entries, as many at a time as are dealt with in one round trip.

    Args:
        per_second: Wait in between, so that no more come in a second; None for as fast as it goes.
        stop: Asked before each slice, and in the pauses; True ends them.

    Raises:
        ValueError: *per_second* is not above 0.
    """
    if per_second is not None and not per_second > 0:
        raise ValueError(f"per_second is {per_second!r}; give how many jobs a second, more than 0, or None")
    size = _SLICE_JOBS if per_second is None else max(1, min(_SLICE_JOBS, int(per_second / _SLICES_PER_SECOND)))
    left = iter(entries)
    began, done = monotonic(), 0
    while part := list(islice(left, size)):
        pause = began + done / per_second - monotonic() if per_second is not None and done else 0.0
        while pause > 0 and not (stop is not None and stop()):
            sleep(min(pause, _LOOK_SECONDS))
            pause -= _LOOK_SECONDS
        if stop is not None and stop():
            return
        yield part
        done += len(part)
