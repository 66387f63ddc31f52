"""
Decides how many jobs to fetch ahead.

No other process can run a job that waits in the local buffer, so only jobs that will probably start within
`buffer_seconds` are fetched ahead. Two measures decide: a high percentile of the recent run times (while jobs are slow,
nothing is fetched ahead), and the rate at which the buffer was last emptied.

Jobs that take longer than half of that time are fetched ahead only from a backlog, where they would wait in their queue
as well. Elsewhere another process may become free sooner. Fetched one by one, a job of 5 ms costs Redis 27 µs; this way
13, and BRPOP 23.

While a round trip to Redis takes long, jobs may wait longer, because without the buffer they would wait for a fetch.
Redis may be far away or busy, or this machine may have too little CPU for all its processes. In the last case, run
times include the wait for a core. Judged by a fixed time, short jobs then seem slow, are fetched one by one, and so
cost even more CPU: 60 processes on one core took 17 s for 30,000 jobs of one HINCRBY, and 10 s with this.
"""

# A round trip that takes longer makes jobs wait longer.
_USUAL_ROUND_TRIP_SECONDS = 0.0025
# With the default of 10 ms for the buffer, a job is never to wait longer than half a second.
_MOST_STRETCH = 50.0
# Before so many jobs have ended, their percentile says nothing.
_LEAST_JOBS = 20
# After so many fetches in a row that brought all the jobs they asked for, the queues have a backlog.
_BACKLOG_FETCHES = 50
_MAX_AHEAD = 1000
_GROWTH = 4
_LEAST_SECONDS = 1e-6


class BatchSize:
    """
    The batch size of one capsule. Its numbers are estimates: threads update them without a lock.

    Args:
        buffer_seconds: The time within which a job that was fetched ahead should start, while round trips are short.

    Attributes:
        high_seconds: About the 95th percentile of the run times.
        stretch: How many times longer than usual a job may wait, because a round trip takes long. At least 1.
    """

    __slots__ = ("_buffer_seconds", "_full_fetches", "_jobs", "_round_trip_seconds", "high_seconds", "stretch")

    def __init__(self, buffer_seconds: float) -> None:
        self._buffer_seconds = buffer_seconds
        # A job that takes longer doubles it, any other shrinks it by 3 %, which balances when one job in twenty takes
        # longer.
        self.high_seconds = buffer_seconds
        # The same of the round trips.
        self._round_trip_seconds = _USUAL_ROUND_TRIP_SECONDS
        self.stretch = 1.0
        # How many jobs have ended.
        self._jobs = 0
        # How many of the last fetches brought all the jobs they asked for.
        self._full_fetches = 0

    def ran(self, seconds: float) -> None:
        """Record that a job took *seconds*."""
        self._jobs += 1
        high = self.high_seconds
        if seconds > high:
            self.high_seconds = min(seconds, high * 2)
        else:
            # Not `max`: its 80 ns per job would be 1 % of a no-op job.
            shrunk = high * 0.97
            self.high_seconds = shrunk if shrunk > _LEAST_SECONDS else _LEAST_SECONDS

    def fetched(self, seconds: float, *, is_full: bool) -> None:
        """
        Record a fetch.

        Args:
            seconds: How long it took.
            is_full: True if it brought all the jobs that it asked for.
        """
        self._full_fetches = self._full_fetches + 1 if is_full else 0
        high = self._round_trip_seconds
        high = min(seconds, high * 2) if seconds > high else max(high * 0.97, _USUAL_ROUND_TRIP_SECONDS)
        self._round_trip_seconds = high
        self.stretch = min(high / _USUAL_ROUND_TRIP_SECONDS, _MOST_STRETCH)

    def refilled(self, consumed: int, seconds: float) -> int:
        """
        Return how many jobs to fetch ahead now.

        Args:
            consumed: The number of jobs started since the last refill, which was *seconds* ago.
        """
        if consumed == 0:
            return 0
        buffer_seconds = self._buffer_seconds * (self.stretch if self._jobs >= _LEAST_JOBS else 1.0)
        is_backlog = self._full_fetches >= _BACKLOG_FETCHES
        if self.high_seconds > (buffer_seconds if is_backlog else buffer_seconds / 2):
            return 0
        startable = int(consumed / max(seconds, _LEAST_SECONDS) * buffer_seconds)
        return max(0, min(startable, _GROWTH * consumed, _MAX_AHEAD))
