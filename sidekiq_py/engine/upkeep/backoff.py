"""What went wrong and will be tried again: told once, retried ever more slowly."""

import logging
from collections import Counter

from sidekiq_py.engine.downtime import Report
from sidekiq_py.logs import counted

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
MOST_REMEMBERED = 10_000
# Longer than a poller takes for a round through 100,000 members that cannot move.
_STALE_AFTER_SECONDS = 600.0

_log = logging.getLogger("sidekiq")


class Backoffs:
    """
    The jobs that could not be moved for the moment. At most `MOST_REMEMBERED`: those beyond are tried whenever their
    turn comes, and are not reported.

    Five thousand jobs behind one middleware that raises are one fault: of the same error the first is reported in each
    pass, and the others are counted.

    Args:
        report: Takes the first error of each kind.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        # By hash, as thousands of payloads would weigh. Value: when to try again, and the pause before that. Those
        # that failed last stand last.
        self._waiting: dict[int, tuple[float, float]] = {}
        # By kind of error: how many jobs have failed so in this pass for the first time.
        self._in_this_pass: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def must_wait(self, member: bytes, at: float) -> bool:
        """Whether it is too early to try again. *at*: monotonic seconds."""
        found = self._waiting.get(hash(member))
        return found is not None and at < found[0]

    def add(self, member: bytes, error: BaseException, context: str, at: float) -> None:
        """Note a failure; of those that are new in this pass one of a kind is reported. *at*: monotonic seconds."""
        found = self._waiting.pop(hash(member), None)
        if found is None:
            self._drop_stale(at)
            if len(self._waiting) >= MOST_REMEMBERED:
                return
            kind = context, type(error).__name__
            self._in_this_pass[kind] += 1
            if self._in_this_pass[kind] == 1:
                self._report(error, {"context": context, "jobstr": member})
            if len(self._waiting) == MOST_REMEMBERED - 1:
                _log.error("%s jobs cannot be moved; errors of further ones are not reported", MOST_REMEMBERED)
        pause = FIRST_PAUSE_SECONDS if found is None else min(found[1] * 2, LONGEST_PAUSE_SECONDS)
        self._waiting[hash(member)] = (at + pause, pause)

    def end_pass(self) -> None:
        """Say how many jobs were not reported one by one."""
        for (context, error_class), jobs in self._in_this_pass.items():
            if jobs > 1:
                _log.warning("%s: the same for %s: %s", context, counted(jobs - 1, "more job"), error_class)
        self._in_this_pass.clear()

    def forget(self, member: bytes) -> None:
        """It was moved, or is gone."""
        self._waiting.pop(hash(member), None)

    def _drop_stale(self, at: float) -> None:
        """Forget those that have not failed again for long: somebody else has taken them out of the set."""
        while self._waiting:
            oldest = next(iter(self._waiting))
            if at <= self._waiting[oldest][0] + _STALE_AFTER_SECONDS:
                return
            del self._waiting[oldest]
