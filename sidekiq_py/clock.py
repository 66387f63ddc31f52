"""
The time, and a wait that can be woken.

Pure code takes `now` as an argument; only long-lived parts and the client ask here.
"""

import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial

_DAY_SECONDS = 24 * 3600


def now_seconds() -> float:
    """Seconds since the epoch, as Ruby's `Time.now.to_f`."""
    return time.time()


def utc_day(now: float) -> str:
    """The UTC date of an epoch time, as in the names of the daily counters."""
    return _day(int(now // _DAY_SECONDS))


@lru_cache(maxsize=2)
def _day(number: int) -> str:
    """Of the day that is so many days after 1970-01-01."""
    return time.strftime("%Y-%m-%d", time.gmtime(number * _DAY_SECONDS))


# Asked several times a job: a function around it would cost more than the question.
monotonic: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds that go on while the process is stopped or the machine sleeps: what a lease is measured by."""


class Wakeable:
    """
    A pause that ends early when somebody calls `wake`.

    After `wake` every later `wait` returns at once, until `rearm`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait; True if woken."""
        return self._event.wait(seconds)

    def wake(self) -> None:
        """End the present wait and all later ones."""
        self._event.set()

    def rearm(self) -> None:
        """Let `wait` wait again."""
        self._event.clear()
