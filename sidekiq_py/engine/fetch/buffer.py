"""
The buffer of jobs that were fetched and have not started.

A processor that finds few jobs left fetches the next batch, and settles the jobs that have ended in the same round trip
(`exchange`). A job that does not start soon goes back to its queue, where another process can fetch it.
"""

import threading
from collections import deque
from collections.abc import Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.batch_size import BatchSize
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.fetcher import note_fetched
from sidekiq_py.engine.fetch.flusher import Alarm
from sidekiq_py.engine.fetch.redis_errors import RedisErrors
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.fetch.side_channel import SideChannel
from sidekiq_py.engine.ownership.owner import UnitOfWork

# Two checks may be closer than the clock's steps.
_LEAST_SECONDS = 1e-6


class Buffer:
    """
    The buffer of one capsule. Any thread may take jobs from it.

    Args:
        side: The connection over which jobs go back.
        alarm: Armed when there are jobs that may have to go back.
        buffer_seconds: The time within which a job that was fetched ahead should start, while round trips are short.

    Attributes:
        jobs: The jobs, in the order in which they run.
        low_water: The next batch is due when fewer jobs than this are left.
        size: Decides how many jobs to fetch ahead.
        is_ahead: True if the jobs were fetched ahead. False if they were meant for idle processors, or came by a move
            that was left open: jobs may take long, so others should find these soon.
        fetching: Held by the thread that fetches, or by one that has to keep others from fetching.
    """

    def __init__(
        self,
        exchange: Exchange,
        queues: ServedQueues,
        side: SideChannel,
        redis_errors: RedisErrors,
        alarm: Alarm,
        buffer_seconds: float,
    ) -> None:
        self._exchange = exchange
        self._queues = queues
        self._side = side
        self._redis_errors = redis_errors
        self._alarm = alarm
        self.jobs: deque[UnitOfWork] = deque()
        self.low_water = 0
        self.size = BatchSize(buffer_seconds)
        self.is_ahead = False
        self.fetching = threading.Lock()
        # The size of the buffer after the last jobs arrived, and when that was.
        self._left = 0
        self._refilled_at = monotonic()
        # How many jobs have arrived and not gone back; how many of them had started at the last check, and when that
        # was.
        self._arrived = 0
        self._started = 0
        self._checked_at = monotonic()
        self._is_stopped = False

    def stop(self) -> None:
        """Stop fetching."""
        self._is_stopped = True

    @property
    def shut_queues(self) -> set[str]:
        """The queues not to wait on: paused, without room on the event loop, or not in the registry yet."""
        return {*self._exchange.paused, *self._queues.full(), *self._exchange.fresh}

    @property
    def are_only_paused(self) -> bool:
        """True if no queue is shut but those that are paused, or whose key is not a list."""
        return not (self._queues.full() or self._exchange.fresh)

    def refill(self, idle: int) -> None:
        """
        Settle the jobs that have ended and fetch a batch, in one round trip. The caller holds `fetching`.

        Args:
            idle: The number of waiting processors.

        Raises:
            RedisError: Redis is unreachable or refuses the commands.
        """
        now = monotonic()
        buffered = len(self.jobs)
        ahead = self.size.refilled(max(0, self._left - buffered), now - self._refilled_at)
        queues = self._queues.with_room()
        wanted = self._queues.startable(idle, ahead) - buffered
        if wanted <= 0 or not queues or self._is_stopped:
            self.low_water = 0
            return
        fetched = self._exchange.run(queues, wanted, now)
        self.jobs.extend(fetched)
        self._arrived += len(fetched)
        self._redis_errors.online("fetching")
        note_fetched(fetched)
        if fetched:
            self.is_ahead = ahead > 0
        self._left = len(self.jobs)
        self.low_water = self._left // 4 if ahead else 0
        self._refilled_at = monotonic()
        self.size.fetched(self._refilled_at - now, is_full=len(fetched) >= wanted)
        if self.jobs:
            self._alarm.arm()

    def refill_beside(self, idle: int = 0) -> None:
        """
        Refill on behalf of a processor that does not wait for it, unless another thread is fetching.

        Args:
            idle: 0 if the processor has a job to run, 1 if not.
        """
        if self.fetching.acquire(blocking=False):
            try:
                self._redis_errors.attempt(lambda: self.refill(idle), "fetching", "fetching")
            finally:
                self.fetching.release()

    def keep(self, units: Sequence[UnitOfWork]) -> int:
        """
        Add the jobs that moves have brought. A job from a queue that is no longer served goes back.

        Returns:
            The number of jobs kept.
        """
        unserved = self._queues.unserved
        served = [unit for unit in units if unit.queue not in unserved] if unserved else units
        if not self.jobs:
            self.is_ahead = False
        # Before anything that may raise, as a handler of telemetry may: no other list holds these jobs.
        self.jobs.extend(served)
        self._arrived += len(served)
        if len(served) < len(units):
            self._side.give_back([unit for unit in units if unit.queue in unserved])
        note_fetched(served)
        return len(served)

    def note_arrival(self) -> float:
        """Note that jobs arrived without a fetch. Returns the time on the monotonic clock."""
        self._left = len(self.jobs)
        self._refilled_at = monotonic()
        return self._refilled_at

    def give_back(self, older_than: float | None) -> None:
        """
        Put late jobs back, or all jobs if *older_than* is None. A job is late if it was fetched more than that many
        seconds ago.

        All jobs behind a late one go back with it: they would start even later, and yet before the late one. But those
        stay that will start within the same time, as long as jobs start as fast as since the last call: where CPU is
        short, fetching them again would only cost more of it. Jobs are taken from the end, so that a processor that
        becomes free meanwhile gets the job that should run first.
        """
        deadline, soon = None, 0
        if older_than is not None:
            now = monotonic()
            deadline, soon = now - older_than, self._starting_within(older_than, now)
        if len(self.jobs) <= soon or not self._is_any_late(deadline):
            return
        late: list[UnitOfWork] = []
        # A fetch at the same time would bring jobs that are less urgent than those on their way back.
        with self.fetching:
            try:
                while len(self.jobs) > soon and self._is_any_late(deadline):
                    try:
                        late.append(self.jobs.pop())
                    except IndexError:
                        break
            finally:
                self.low_water = 0
                self._arrived -= len(late)
                if late:
                    self._side.give_back(late[::-1])

    def _starting_within(self, seconds: float, now: float) -> int:
        """How many jobs will start within that time, if as many start as since the last call."""
        started = self._arrived - len(self.jobs)
        pace = (started - self._started) / max(now - self._checked_at, _LEAST_SECONDS)
        self._started, self._checked_at = started, now
        return int(pace * seconds)

    def _is_any_late(self, deadline: float | None) -> bool:
        """
        True if a job at either end of the buffer was fetched before *deadline*. Without a deadline, every job counts as
        late.
        """
        try:
            return deadline is None or min(self.jobs[0].fetched_at, self.jobs[-1].fetched_at) <= deadline
        except IndexError:
            return False
