"""
How many jobs to fetch ahead.

A job in the local buffer waits where no other process can run it, so ahead of need comes only what will probably
start within `buffer_seconds`. Two measures decide: a high percentile of the recent run times (with slow jobs nothing
is fetched ahead), and the rate at which the buffer was last emptied.
"""

_MAX_AHEAD = 1000
_GROWTH = 4
_LEAST_SECONDS = 1e-6


class BatchSize:
    """
    The measure of one capsule. Its numbers are estimates: threads update them without a lock.

    Args:
        buffer_seconds: Within which a job fetched ahead should start.
    """

    __slots__ = ("_buffer_seconds", "ahead", "high_seconds")

    def __init__(self, buffer_seconds: float) -> None:
        self._buffer_seconds = buffer_seconds
        # About the 95th percentile of the run times: one in twenty doubles it, the others shrink it by 3 %.
        self.high_seconds = buffer_seconds
        self.ahead = 0

    def ran(self, seconds: float) -> None:
        """A job took *seconds*."""
        high = self.high_seconds
        if seconds > high:
            self.high_seconds = min(seconds, high * 2)
        else:
            # Not by `max`: once a job its 80 ns would be a hundredth of a no-op job.
            shrunk = high * 0.97
            self.high_seconds = shrunk if shrunk > _LEAST_SECONDS else _LEAST_SECONDS

    def refilled(self, consumed: int, seconds: float) -> int:
        """
        How many to fetch ahead now.

        Args:
            consumed: Jobs started since the last refill, *seconds* ago.
        """
        if self.high_seconds > self._buffer_seconds / 2 or consumed == 0:
            self.ahead = 0
        else:
            startable = int(consumed / max(seconds, _LEAST_SECONDS) * self._buffer_seconds)
            self.ahead = max(0, min(startable, _GROWTH * consumed, _MAX_AHEAD))
        return self.ahead
