"""
Decides how many jobs to fetch ahead.

No other process can run a job that waits in the local buffer, so only jobs that will probably start within
`buffer_seconds` are fetched ahead. Two measures decide: a high percentile of the recent run times (while jobs are slow,
nothing is fetched ahead), and the rate at which the buffer was last emptied.
"""

_MAX_AHEAD = 1000
_GROWTH = 4
_LEAST_SECONDS = 1e-6


class BatchSize:
    """
    The batch size of one capsule. Its numbers are estimates: threads update them without a lock.

    Args:
        buffer_seconds: The time within which a job that was fetched ahead should start.
    """

    __slots__ = ("_buffer_seconds", "ahead", "high_seconds")

    def __init__(self, buffer_seconds: float) -> None:
        self._buffer_seconds = buffer_seconds
        # About the 95th percentile of the run times: a job that takes longer doubles it, any other shrinks it by 3 %,
        # which balances when one job in twenty takes longer.
        self.high_seconds = buffer_seconds
        self.ahead = 0

    def ran(self, seconds: float) -> None:
        """Record that a job took *seconds*."""
        high = self.high_seconds
        if seconds > high:
            self.high_seconds = min(seconds, high * 2)
        else:
            # Not `max`: its 80 ns per job would be 1 % of a no-op job.
            shrunk = high * 0.97
            self.high_seconds = shrunk if shrunk > _LEAST_SECONDS else _LEAST_SECONDS

    def refilled(self, consumed: int, seconds: float) -> int:
        """
        Return how many jobs to fetch ahead now.

        Args:
            consumed: The number of jobs started since the last refill, which was *seconds* ago.
        """
        if self.high_seconds > self._buffer_seconds / 2 or consumed == 0:
            self.ahead = 0
        else:
            startable = int(consumed / max(seconds, _LEAST_SECONDS) * self._buffer_seconds)
            self.ahead = max(0, min(startable, _GROWTH * consumed, _MAX_AHEAD))
        return self.ahead
