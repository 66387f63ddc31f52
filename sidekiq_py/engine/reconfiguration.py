"""Changes a worker process while it runs: the queues that it serves, and how many jobs it runs at once."""

import threading
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from sidekiq_py.config import CapsuleConfig, QueueConfig
from sidekiq_py.engine.run.attempt import Surroundings
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.upkeep.heartbeat import Heartbeat
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import queues as queue_reads

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop

# Between two short jobs, a process is idle for a shorter time than these checks span. If it runs nothing at any of
# them, it has no work.
_LOOKS = 5
_BETWEEN_LOOKS_SECONDS = 0.002


class Reconfiguration:
    """
    Changes one process. Safe to use from any thread.

    Args:
        managers: The managers, by the name of their capsule.
        loop: The event loop for `async def` jobs, if any is declared.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        pool: Pool,
        managers: Mapping[str, Manager],
        loop: "EventLoop | None",
        heartbeat: Heartbeat,
    ) -> None:
        self._foreign = surroundings.foreign
        self._state = surroundings.state
        self._pool = pool
        self._managers = managers
        self._loop = loop
        self._heartbeat = heartbeat
        self._asked_for = {capsule.name: capsule.weights for capsule in surroundings.config.capsules}
        self._lock = threading.Lock()

    @property
    def queues(self) -> list[str]:
        """The queues that all capsules together should serve."""
        return list(dict.fromkeys(name for weights in self._asked_for.values() for name in weights))

    def serve(self, queues: Sequence[QueueConfig], capsule: str = "default") -> None:
        """
        Fetch from exactly these queues.

        Args:
            queues: The queues in order of precedence, with weights of the same mode as before. A queue that was refused
                because it holds jobs of an extension stays refused, unless it is new here.
        """
        weights = CapsuleConfig(queues=tuple(queues)).weights if queues else {}
        with self._lock:
            before = self.queues
            added = weights.keys() - self._asked_for[capsule].keys()
            self._asked_for[capsule] = weights
            dropped = set(before).difference(self.queues)

            def serve(refused: AbstractSet[str]) -> None:
                served = {name: weight for name, weight in weights.items() if name not in refused}
                self._managers[capsule].fetcher.serve(served)
                self._heartbeat.change(lambda facts: facts.with_capsule(capsule, weights=served))

            self._foreign.change(added, dropped, serve)

    def resize(self, threads: int, capsule: str = "default") -> None:
        """Run this many jobs at once in threads. Running jobs are not stopped."""
        with self._lock:
            self._managers[capsule].resize(threads)
            self._heartbeat.change(lambda facts: facts.with_capsule(capsule, concurrency=threads))

    def resize_loop(self, coroutines: int) -> None:
        """Run this many `async def` jobs at once. Running jobs are not stopped."""
        if self._loop is not None:
            self._loop.resize(coroutines)
            self._heartbeat.change(lambda facts: replace(facts, coroutines=coroutines))

    def load(self, asks_waiting: bool) -> list[int]:
        """
        Return the number of running jobs, followed by the number of jobs that wait in the queues if *asks_waiting* is
        set and Redis replies.
        """
        running = self._running()
        try:
            return [running, self._waiting()] if asks_waiting else [running]
        except RedisError:
            return [running]

    def _running(self) -> int:
        for _ in range(_LOOKS):
            if running := self._state.busy:
                return running
            time.sleep(_BETWEEN_LOOKS_SECONDS)
        return 0

    def _waiting(self) -> int:
        return sum(queue_reads.waiting(self._pool, self.queues))
