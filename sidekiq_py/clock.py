"""
The time, and a wait that can be woken.

Pure code takes `now` as an argument; only long-lived parts and the client ask here.
"""

import threading
import time
from collections.abc import Callable
from functools import partial


def now_seconds() -> float:
    """Seconds since the epoch, as Ruby's `Time.now.to_f`."""
    return time.time()


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
