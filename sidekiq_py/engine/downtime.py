"""
Reports outages of Redis, or of anything else that fails repeatedly, without repetition.

`Outage` is for one thread: it reports the first error of an outage, but not the errors of further tries. `Downtime` is
for the whole process and logs in a single line how long Redis was down. The fetchers notice an outage at once and the
heartbeat at its next beat, and each finds Redis back at a different time. So there used to be two lines about one
outage, with two durations.
"""

import math
import threading
from collections.abc import Callable

from sidekiq_py.clock import monotonic as clock_monotonic
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.logs import log
from sidekiq_py.telemetry import REDIS_OUTAGE, Report

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0

# A broken connection stops all work, no matter which part notices it.
_ALL_WORK = ""
# While Redis lets no further client in, the connections that are open still work: such outages end as they begin, twice
# a second. So one that follows another within this time is only reported if it lasts.
_REPORT_SECONDS = 60.0
_LASTING_SECONDS = 2.0
# Refusals that are about one kind of work: what has been reported of another says nothing about it.
_ABOUT_ONE_WORK = frozenset({"NOPERM", "WRONGTYPE"})


class Outage:
    """
    A period of time in which a task keeps failing.

    Args:
        report: Called with the first error of each outage.
        context: The description to report with it.
    """

    def __init__(self, report: Report, context: str) -> None:
        self._report = report
        self._context = context
        self._is_on = False
        self._pause_seconds = 0.0

    def failed(self, error: BaseException) -> float:
        """Record a failure. Returns how many seconds to wait before the next try."""
        if not self._is_on:
            self._is_on = True
            self._pause_seconds = FIRST_PAUSE_SECONDS
            self._report(error, {"context": self._context})
        else:
            self._pause_seconds = min(self._pause_seconds * 2, LONGEST_PAUSE_SECONDS)
        return self._pause_seconds

    def over(self) -> None:
        """Record that the task works again."""
        self._is_on = False


class Downtime:
    """
    The Redis outages of one process. Safe to use from any thread.

    Redis may refuse one kind of work and carry out another. So a refusal is over when that kind of work succeeds, while
    a broken connection is over as soon as any work does.

    Attributes:
        is_on: True while something fails. Callers check this first, so that a successful fetch costs only this check.
    """

    def __init__(self, *, monotonic: Callable[[], float] = clock_monotonic) -> None:
        self._monotonic = monotonic
        self.is_on = False
        self._failing: set[str] = set()
        self._began = 0.0
        self._is_reported = False
        self._reported_at = -math.inf
        self._refused_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def is_failing(self, work: str) -> bool:
        """True if *work* fails, or everything."""
        return not self._failing.isdisjoint((_ALL_WORK, work))

    def failed(self, error: RedisError, work: str) -> bool:
        """
        Record that *work* failed.

        Returns:
            True if this failure is the one to report.
        """
        with self._lock:
            now = self._monotonic()
            if not self._failing:
                self._began = now
            is_first = work not in self._failing
            self._failing.add(work if isinstance(error, RedisReplyError) else _ALL_WORK)
            self.is_on = True
            if self._is_reported and is_first and isinstance(error, RedisReplyError) and error.code in _ABOUT_ONE_WORK:
                return self._begins_series(work, now)
            if self._is_reported or (
                now - self._reported_at < _REPORT_SECONDS and now - self._began < _LASTING_SECONDS
            ):
                return False
            self._is_reported, self._reported_at = True, now
        if REDIS_OUTAGE.handlers:
            REDIS_OUTAGE.emit({"is_over": False, "seconds": 0.0, "error": error})
        return True

    def refused(self, refusal: str) -> bool:
        """
        Record that Redis refused to end a job, or to move one.

        Returns:
            True if this is the refusal to log. Redis may accept the commands of other jobs meanwhile, so a success in
            between does not end the series. A minute without this *refusal* does.
        """
        with self._lock:
            return self._begins_series(refusal, self._monotonic())

    def _begins_series(self, refusal: str, now: float) -> bool:
        self._refused_at = {text: at for text, at in self._refused_at.items() if now - at < _REPORT_SECONDS}
        is_first = refusal not in self._refused_at
        self._refused_at[refusal] = now
        return is_first

    def works(self, work: str) -> None:
        """Record that *work* succeeded. When nothing fails any more, log how long the outage was if it was reported."""
        if not self.is_on:
            return
        with self._lock:
            self._failing -= {_ALL_WORK, work}
            if self._failing or not self.is_on:
                return
            self.is_on = False
            was_reported, self._is_reported = self._is_reported, False
            if not was_reported:
                return
            seconds = self._monotonic() - self._began
            log.info("Redis is online, %.1f sec downtime", seconds)
        if REDIS_OUTAGE.handlers:
            REDIS_OUTAGE.emit({"is_over": True, "seconds": seconds, "error": None})
