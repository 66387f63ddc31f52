"""
The current time.

Pure code takes `now` as an argument; only long-lived parts and the client read the clock here.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial


def now_seconds() -> float:
    """Seconds since the epoch, like Ruby's `Time.now.to_f`."""
    return time.time()


def utc_day(now: float) -> str:
    """The UTC date of an epoch time, as used in the names of the daily counters."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def utc(seconds: float) -> datetime | None:
    """An epoch time as a datetime; None if it is in no year that a datetime can have."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def largest_units(seconds: int) -> list[tuple[int, str]]:
    """
    *seconds* in its largest unit and the next smaller one, such as `[(3, "h"), (20, "m")]`; empty for 0.

    Only the first if there is less than one of the second: nobody wants the seconds of three days.
    """
    found = []
    for size, unit in ((31_536_000, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            found.append((count, unit))
        if found and (not count or len(found) == 2):
            break
    return found


monotonic: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):  # not on Windows
    # Called several times per job: a wrapper function would cost more than the call itself.
    monotonic = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds on a clock that runs on while the process is stopped or the machine sleeps. Leases are timed with it."""
