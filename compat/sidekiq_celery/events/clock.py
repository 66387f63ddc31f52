"""The logical clock of a worker's processes."""

import time
from typing import Any

from kombu.clocks import LamportClock

from sidekiq_celery.contract import App


class WallClock(LamportClock):
    """
    A logical clock that keeps up with the time of day, in milliseconds.

    Monitors order events by the senders' logical clocks. The processes of a worker do not receive each other's events,
    so clocks that only count would sort a busy process's events after an idle one's.
    """

    def forward(self) -> int:
        """Return a value greater than all that were returned or seen."""
        with self.mutex:
            self.value = max(self.value + 1, int(time.time() * 1000))
            return int(self.value)


def keep_up(app: App) -> WallClock:
    """Give *app* such a clock in this process, and return it."""
    clock = app.clock
    if not isinstance(clock, WallClock):
        # To mypy, a `cached_property` seen through a Protocol cannot be set.
        owner: Any = app
        clock = owner.clock = WallClock(clock.value)
    return clock
