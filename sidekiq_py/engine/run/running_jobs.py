"""The jobs that run in this process, and the time that a shutdown gives them."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.logs import counted_jobs, log

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop


# How long a job may take to react to Shutdown. Source: Sidekiq 6.4 and later, manager.rb.
_GRACE_SECONDS = 3.0
# How long Redis may take to accept the ends of jobs. A Celery worker's deadline is a week away.
_ACCEPT_SECONDS = 30.0
_LOOK_SECONDS = 0.02


class RunningJobs:
    """
    The running jobs of all capsules and of the event loop.

    Args:
        state: Knows which jobs run.
        managers: The managers of the jobs in threads.
        loop: The event loop that runs `async def` jobs, if any is declared.
    """

    def __init__(self, state: WorkState, managers: Sequence[Manager], loop: "EventLoop | None") -> None:
        self._state = state
        self._managers = managers
        self._loop = loop
        self._deadline = 0.0

    @property
    def reserved(self) -> list[UnitOfWork]:
        """The jobs that were fetched from their queues and have not started."""
        return [unit for manager in self._managers for unit in manager.fetcher.reserved]

    def set_deadline(self, seconds: float) -> None:
        """Give the jobs this long to finish when the process stops."""
        self._deadline = monotonic() + seconds

    def hurry(self) -> None:
        """End the wait of a stop that is under way."""
        self._deadline = 0.0

    def stop(self) -> None:
        """
        Wait for the jobs until the deadline, then raise Shutdown in those that are left and wait 3 more seconds.

        Before the deadline, it also waits for Redis to accept the ends of jobs that have ended: during a failover it
        refuses them for some seconds, and without them these jobs would run again.
        """
        if self._wait_until(lambda: not self._is_busy, lambda: self._deadline):
            give_up_at = monotonic() + _ACCEPT_SECONDS
            self._wait_until(lambda: not self._is_waiting_for_redis, lambda: min(self._deadline, give_up_at))
            return
        if self._state.busy:
            log.info("The time for jobs to finish is up: raising Shutdown in %s", self._named_jobs())
        for manager in self._managers:
            manager.interrupt()
        if self._loop is not None:
            self._loop.shut_down_jobs()
        end = monotonic() + _GRACE_SECONDS
        if not self._wait_until(lambda: not self._is_busy, lambda: end) and self._state.busy:
            log.warning("%s did not stop on Shutdown; unfinished work goes back to its queue", self._named_jobs())

    def may_be_left(self) -> bool:
        """True if no job runs, or if the deadline and the grace period have passed."""
        is_running = self._state.busy > 0 or self._is_loop_busy
        return not is_running or monotonic() >= self._deadline + _GRACE_SECONDS

    @staticmethod
    def _wait_until(is_done: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        pause = threading.Event()
        while not is_done():
            if monotonic() >= deadline():
                return False
            pause.wait(_LOOK_SECONDS)
        return True

    def _named_jobs(self) -> str:
        running = self._state.snapshot()
        return counted_jobs(len(running), (job.unit.raw for job in running))

    @property
    def _is_busy(self) -> bool:
        # A job that was handed to the loop is not in `state` until a moment later.
        return self._is_loop_busy or self._state.busy > 0 or not all(manager.is_idle for manager in self._managers)

    @property
    def _is_waiting_for_redis(self) -> bool:
        return any(manager.fetcher.is_waiting_for_redis for manager in self._managers)

    @property
    def _is_loop_busy(self) -> bool:
        return self._loop is not None and self._loop.running > 0
