"""
Jobs that were fetched and have not started.

Who finds few of them left fetches the next batch, and hands in what is due in the same round trip (`exchange`). What
does not start soon goes back to its queue, where another process may find it.
"""

import threading
from collections import deque
from collections.abc import Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.batch_size import BatchSize
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.fetcher import note_fetched
from sidekiq_py.engine.fetch.flusher import Alarm
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.fetch.side_channel import SideChannel
from sidekiq_py.engine.fetch.trouble import Trouble
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.errors import RedisConnectionError, RedisError, ReplyLostError


class Buffer:
    """
    One capsule's. Jobs may be taken by any thread.

    Args:
        side: By which jobs go back.
        alarm: Rung when there are jobs that may have to go back.
        buffer_seconds: Within which a job fetched ahead should start.

    Attributes:
        jobs: What is to run first comes first.
        low_water: With fewer jobs left the next batch is to be fetched.
        size: How many to fetch ahead.
        fetching: Held by who fetches, or may let nobody fetch.
    """

    def __init__(
        self,
        exchange: Exchange,
        queues: ServedQueues,
        side: SideChannel,
        trouble: Trouble,
        alarm: Alarm,
        buffer_seconds: float,
    ) -> None:
        self._exchange = exchange
        self._queues = queues
        self._side = side
        self._trouble = trouble
        self._alarm = alarm
        self.jobs: deque[UnitOfWork] = deque()
        self.low_water = 0
        self.size = BatchSize(buffer_seconds)
        self.fetching = threading.Lock()
        # How many there were when jobs came last, and when that was.
        self._left = 0
        self._refilled_at = monotonic()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Buffer {len(self.jobs)}>"

    def stop(self) -> None:
        """Fetch no more."""
        self._is_stopped = True

    @property
    def shut_queues(self) -> set[str]:
        """Those that nothing is to be waited for from: paused, without room, or not in the registry yet."""
        return {*self._exchange.paused, *self._queues.full(), *self._exchange.fresh}

    def refill(self, idle: int) -> None:
        """
        Hand in what is due and fetch a batch, in one round trip. The caller holds `fetching`.

        Args:
            idle: Processors that wait.

        Raises:
            RedisError: Redis is out of reach, or refuses it.
        """
        now = monotonic()
        buffered = len(self.jobs)
        ahead = self.size.refilled(max(0, self._left - buffered), now - self._refilled_at)
        queues = self._queues.with_room()
        wanted = self._queues.startable(idle, ahead) - buffered
        if wanted <= 0 or not queues or self._is_stopped:
            self.low_water = 0
            return
        try:
            fetched = self._exchange.run(queues, wanted, now)
            self.jobs.extend(fetched)
        except RedisError as error:
            if isinstance(error, ReplyLostError | RedisConnectionError):
                self._trouble.note()
            raise
        note_fetched(fetched)
        self._left = len(self.jobs)
        self.low_water = self._left // 4 if ahead else 0
        self._refilled_at = monotonic()
        if self.jobs:
            self._alarm.arm()

    def refill_beside(self) -> None:
        """As `refill`, by a processor that has a job to run, unless another one does."""
        if self.fetching.acquire(blocking=False):
            try:
                self._trouble.attempt(lambda: self.refill(0), "fetching", "fetching")
            finally:
                self.fetching.release()

    def keep(self, units: Sequence[UnitOfWork]) -> int:
        """
        Take in what moves have brought; what came too late from a queue that is served no more goes back.

        Returns:
            How many were kept.
        """
        unserved = self._queues.unserved
        served = [unit for unit in units if unit.queue not in unserved] if unserved else units
        note_fetched(served)
        self.jobs.extend(served)
        if len(served) < len(units):
            self._side.give_back([unit for unit in units if unit.queue in unserved])
        return len(served)

    def note_arrival(self) -> float:
        """Jobs have come by themselves; returns when, on the monotonic clock."""
        self._left = len(self.jobs)
        self._refilled_at = monotonic()
        return self._refilled_at

    def give_back(self, older_than: float | None) -> None:
        """
        Give back what waits here; None: all of it, else if its first job was fetched more seconds ago.

        With a late job goes all that stands behind it: it would start later still, and before the late one. From the
        end, so that a processor that comes free meanwhile takes what is to run first.
        """
        deadline = None if older_than is None else monotonic() - older_than
        if not self._is_any_late(deadline):
            return
        late: list[UnitOfWork] = []
        # A fetch meanwhile would bring less urgent jobs than those that are on their way back.
        with self.fetching:
            try:
                while self._is_any_late(deadline):
                    try:
                        late.append(self.jobs.pop())
                    except IndexError:
                        break
            finally:
                self.low_water = 0
                if late:
                    self._side.give_back(late[::-1])

    def _is_any_late(self, deadline: float | None) -> bool:
        """A job at either end of the buffer was fetched before *deadline*; None: there is one at all."""
        try:
            return deadline is None or min(self.jobs[0].fetched_at, self.jobs[-1].fetched_at) <= deadline
        except IndexError:
            return False
