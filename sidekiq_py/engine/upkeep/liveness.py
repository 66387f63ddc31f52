"""Tells health probes whether a worker process's loops run, and whether it fetches jobs."""

from collections.abc import Mapping
from typing import Protocol

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.engine.run.life_cycle import LifeCycle
from sidekiq_py.redis_access.connection.pool import Pool

# How many timeouts of a hanging Redis one turn of a loop may run into.
_TIMEOUTS_IN_A_TURN = 3


class Loop(Protocol):
    """A part that runs a loop in a thread."""

    @property
    def pulse(self) -> Pulse:
        """Says when the loop's next turn is due."""


class Liveness:
    """
    The liveness of one process.

    Args:
        life: The phase that the process is in.
        pool: Connections to its Redis.
        downtime: The outages of that Redis.
        loops: Loops that run the whole time, by name.
        fetching: Loops that end when the process stops fetching, by name.
        stall_seconds: How long a loop may take for one turn.
    """

    def __init__(
        self,
        life: LifeCycle,
        pool: Pool,
        downtime: Downtime,
        loops: Mapping[str, Loop],
        fetching: Mapping[str, Loop],
        stall_seconds: float,
    ) -> None:
        self._life = life
        self._pool = pool
        self._downtime = downtime
        self._loops = loops
        self._fetching = fetching
        # A hanging Redis may hold up a loop for this long.
        self._patience_seconds = stall_seconds + _TIMEOUTS_IN_A_TURN * pool.settings.socket_timeout_seconds

    def stalled_loops(self) -> list[str]:
        """
        Return the names of the loops that have been stuck for too long; none while the process stops. Sends nothing to
        Redis.

        The running time of jobs does not matter. Loops that run the program's own code are checked as well: without the
        heartbeat the process vanishes from the Web UI, and without the poller due jobs may wait.
        """
        if self._life.is_stopping:
            return []
        loops = self._loops if self._life.is_quieting else {**self._loops, **self._fetching}
        return [name for name, loop in loops.items() if loop.pulse.overdue_seconds > self._patience_seconds]

    def why_not_fetching(self) -> str | None:
        """Return why this process fetches no jobs now, or None if it does. Sends nothing to Redis."""
        if not self._life.has_started:
            return "starting"
        if self._life.is_quieting:
            return "it takes no more jobs"
        return "Redis is out of reach, or refuses commands that a worker needs" if self._downtime.is_on else None

    def ping(self, *, within_seconds: float) -> None:
        """
        Ping Redis.

        Raises:
            RedisError: Redis did not reply, or replied with an error.
        """
        link = self._pool.new_link(timeout_seconds=within_seconds)
        try:
            link.command("PING")
        finally:
            link.close()
