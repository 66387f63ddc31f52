"""What becomes of many entries that are moved at once."""

from collections.abc import Callable
from dataclasses import dataclass

from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.redis_access.promote import Moved

_KEPT_ERRORS = 100

Progress = Callable[[int], None]
"""Called after each slice with the number of entries dealt with so far."""


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
