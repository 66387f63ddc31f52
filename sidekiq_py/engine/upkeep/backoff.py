"""Jobs that could not be moved: each failure is reported once and retried at growing intervals."""

import math
from collections import Counter

from sidekiq_py.logs import counted, log
from sidekiq_py.telemetry import Report

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
MOST_REMEMBERED = 10_000
# An error of a kind is reported once in this time, and so is the number of the others.
REPORT_SECONDS = 60.0
# Longer than a poller takes to go through 100,000 members that cannot be moved.
_STALE_AFTER_SECONDS = 600.0


class Backoffs:
    """
    The jobs that could not be moved for now. It remembers at most `MOST_REMEMBERED`: any more are tried whenever their
    turn comes, and are not reported.

    Five thousand jobs that fail in the same middleware are one fault, and so are those that come due one by one while
    its database is down. So the first error of a kind is reported, and for a minute the others are counted.

    Args:
        report: Called with the first error of each kind.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        # The keys are hashes, because thousands of payloads would take much memory. The values are the time of the next
        # try and the pause before it. The latest failures are at the end.
        self._waiting: dict[int, tuple[float, float]] = {}
        # By kind of error: how many jobs failed this way for the first time and were not reported or counted yet, and
        # when one was last.
        self._unreported: Counter[tuple[str, str]] = Counter()
        self._reported_at: dict[tuple[str, str], float] = {}
        self._counted_at: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def must_wait(self, member: bytes, at: float) -> bool:
        """Returns True if it is too early to try again. *at* is the time in monotonic seconds."""
        found = self._waiting.get(hash(member))
        return found is not None and at < found[0]

    def add(self, member: bytes, error: BaseException, context: str, at: float) -> None:
        """
        Record a failure. Of the new failures, one of each kind is reported in a minute.

        Args:
            at: The time in monotonic seconds.
        """
        found = self._waiting.pop(hash(member), None)
        if found is None:
            self._drop_stale(at)
            if len(self._waiting) >= MOST_REMEMBERED:
                return
            kind = context, type(error).__name__
            if at - self._reported_at.get(kind, -math.inf) >= REPORT_SECONDS:
                self._reported_at[kind] = at
                self._report(error, {"context": context, "jobstr": member})
            else:
                self._unreported[kind] += 1
            if len(self._waiting) == MOST_REMEMBERED - 1:
                log.error("%s jobs cannot be moved; errors of further ones are not reported", MOST_REMEMBERED)
        pause = FIRST_PAUSE_SECONDS if found is None else min(found[1] * 2, LONGEST_PAUSE_SECONDS)
        self._waiting[hash(member)] = (at + pause, pause)

    def end_pass(self, at: float) -> None:
        """Log how many jobs were not reported individually, once a minute. *at* is the time in monotonic seconds."""
        for kind, jobs in list(self._unreported.items()):
            if at - self._counted_at.get(kind, -math.inf) >= REPORT_SECONDS:
                self._counted_at[kind] = at
                del self._unreported[kind]
                context, error_class = kind
                log.warning("%s: the same for %s: %s", context, counted(jobs, "more job"), error_class)

    def forget(self, member: bytes) -> None:
        """Forget a job that was moved or is gone."""
        self._waiting.pop(hash(member), None)

    def _drop_stale(self, at: float) -> None:
        """Forget jobs that have not failed again for a long time: they must have left the set by other means."""
        while self._waiting:
            oldest = next(iter(self._waiting))
            if at <= self._waiting[oldest][0] + _STALE_AFTER_SECONDS:
                return
            del self._waiting[oldest]
