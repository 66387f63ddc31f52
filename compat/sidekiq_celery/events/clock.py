"""The logical clock of a worker's processes."""

import time

from kombu.clocks import LamportClock

__all__ = ("WallClock",)


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
