"""Whether a worker process turns and fetches, for those who probe it."""

from collections.abc import Mapping
from typing import Protocol

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.engine.run.life_cycle import LifeCycle
from sidekiq_py.redis_access.connection.pool import Pool

# How often one turn of a loop may wait in vain for a Redis that hangs.
_TIMEOUTS_IN_A_TURN = 3


class Loop(Protocol):
    """A part with a thread that turns."""

    @property
    def pulse(self) -> Pulse:
        """When it turns next."""


class Liveness:
    """
    Of one process.

    Args:
        life: How far it is.
        pool: To its Redis.
        downtime: Of that Redis.
        loops: Its own, by name.
        fetching: Those of its own that end when the process takes no more jobs.
        stall_seconds: How long one may take for a turn.
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
        # A Redis that hangs holds a loop up for so long.
        self._patience_seconds = stall_seconds + _TIMEOUTS_IN_A_TURN * pool.settings.socket_timeout_seconds

    def stalled_loops(self) -> list[str]:
        """
        Those of this process's own loops that have not turned for too long; none while it stops. Asks nobody.

        How long a job runs is not looked at. The loops that run code of the program's are, too: without the heartbeat
        the process vanishes from the Web UI, without the poller due jobs may wait.
        """
        if self._life.is_stopping:
            return []
        loops = self._loops if self._life.is_quieting else {**self._loops, **self._fetching}
        return [name for name, loop in loops.items() if loop.pulse.overdue_seconds > self._patience_seconds]

    def why_not_fetching(self) -> str | None:
        """Why this process takes no jobs now, or None. Asks nobody."""
        if not self._life.has_started:
            return "starting"
        if self._life.is_quieting:
            return "it takes no more jobs"
        return "Redis is out of reach, or refuses what a worker needs" if self._downtime.is_on else None

    def ping(self, *, within_seconds: float) -> None:
        """
        Ask Redis for a sign of life.

        Raises:
            RedisError: It gives none.
        """
        link = self._pool.new_link(timeout_seconds=within_seconds)
        try:
            link.command("PING")
        finally:
            link.close()
