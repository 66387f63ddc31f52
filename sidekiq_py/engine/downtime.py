"""
What is told of Redis being away, or of anything else that fails again and again.

`Outage` is for one thread: the first error of a stretch is reported, and not the same one with every try. `Downtime` is
for the process, and says how long Redis was away in one line of the log: the fetchers notice at once, the heartbeat at
its next beat, and each found Redis back at a time of its own, so that two lines told of one outage with two durations.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from sidekiq_py.clock import monotonic as clock_monotonic
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.telemetry import REDIS_OUTAGE

_log = logging.getLogger("sidekiq")

Report = Callable[[BaseException, dict[str, Any]], None]

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0

# What a broken connection stops: all work, whoever it is that notices.
_ALL_WORK = ""


class Outage:
    """
    A stretch of time in which nothing works.

    Args:
        report: Takes the first error of each outage.
        context: Told along with it.
    """

    def __init__(self, report: Report, context: str) -> None:
        self._report = report
        self._context = context
        self._is_on = False
        self._pause_seconds = 0.0

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns how many seconds to wait before the next try."""
        if not self._is_on:
            self._is_on = True
            self._pause_seconds = FIRST_PAUSE_SECONDS
            self._report(error, {"context": self._context})
        else:
            self._pause_seconds = min(self._pause_seconds * 2, LONGEST_PAUSE_SECONDS)
        return self._pause_seconds

    def over(self) -> None:
        """Note that it works."""
        self._is_on = False


class Downtime:
    """
    Of one process. Safe from any thread.

    Redis may refuse one kind of work and do another, so a refusal is over when that kind of work succeeds; a broken
    connection is over as soon as anything does.
    """

    def __init__(self, *, monotonic: Callable[[], float] = clock_monotonic) -> None:
        self._monotonic = monotonic
        self._failing: set[str] = set()
        self._began = 0.0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Downtime {sorted(self._failing)}>"

    @property
    def is_on(self) -> bool:
        """Something fails; looked at with every fetch, so that one that works costs no more than that."""
        return bool(self._failing)

    def failed(self, error: RedisError, work: str) -> bool:
        """
        Note that *work* failed.

        Returns:
            Whether it is the first failure since all worked, and so the one to report.
        """
        with self._lock:
            is_first = not self._failing
            if is_first:
                self._began = self._monotonic()
            self._failing.add(work if isinstance(error, RedisReplyError) else _ALL_WORK)
        if is_first and REDIS_OUTAGE.handlers:
            REDIS_OUTAGE.emit({"is_over": False, "seconds": 0.0, "error": error})
        return is_first

    def works(self, work: str) -> None:
        """Note that *work* succeeded; once nothing is left that fails, the log says how long it took."""
        if not self._failing:
            return
        with self._lock:
            if not self._failing:
                return
            self._failing -= {_ALL_WORK, work}
            if self._failing:
                return
            seconds = self._monotonic() - self._began
            _log.info("Redis is online, %.1f sec downtime", seconds)
        if REDIS_OUTAGE.handlers:
            REDIS_OUTAGE.emit({"is_over": True, "seconds": seconds, "error": None})
