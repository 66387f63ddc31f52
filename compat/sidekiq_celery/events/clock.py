"""The logical clock of a worker's processes."""

import time
from typing import TYPE_CHECKING

from kombu.clocks import LamportClock

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

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


def keep_up(app: "Celery") -> WallClock:
    """Let the clock of *app* be such a one, in this process; returns it."""
    clock = app.clock
    if not isinstance(clock, WallClock):
        clock = app.clock = WallClock(clock.value)
    return clock
