"""The logical clock of a worker's processes."""

import time
from typing import Any

from kombu.clocks import LamportClock

from sidekiq_celery.contract import App

__all__ = ("WallClock", "keep_up")


class WallClock(LamportClock):
    """
    A logical clock that keeps up with the time of day, in milliseconds.

    Monitors order events by the senders' logical clocks. The processes of a worker hear nothing of each other, so
    clocks that only count would put a busy one's events behind an idle one's.
    """

    def forward(self) -> int:
        """A moment after all that were given or heard of."""
        with self.mutex:
            self.value = max(self.value + 1, int(time.time() * 1000))
            return int(self.value)


def keep_up(app: App) -> WallClock:
    """Let the clock of *app* be such a one, in this process; returns it."""
    clock = app.clock
    if not isinstance(clock, WallClock):
        # To mypy a `cached_property` that a Protocol sees cannot be set.
        owner: Any = app
        clock = owner.clock = WallClock(clock.value)
    return clock
