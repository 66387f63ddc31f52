"""The jobs that run in this process, and the time that a stop gives them."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.logs import counted

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop

_log = logging.getLogger("sidekiq")

# What a job is given to heed Shutdown. Source: Sidekiq 6.4 and later, manager.rb.
_GRACE_SECONDS = 3.0
_LOOK_SECONDS = 0.02


class RunningJobs:
    """
    Of all capsules, and of the event loop.

    Args:
        state: What runs.
        managers: Of the jobs in threads.
        loop: Where `async def` jobs run, if any is declared.
    """

    def __init__(self, state: WorkState, managers: Sequence[Manager], loop: "EventLoop | None") -> None:
        self._state = state
        self._managers = managers
        self._loop = loop
        self._deadline = 0.0

    def __repr__(self) -> str:
        return f"<RunningJobs busy={self._state.busy}>"

    @property
    def reserved(self) -> list[UnitOfWork]:
        """Jobs that were taken out of their queues and have not started."""
        return [unit for manager in self._managers for unit in manager.fetcher.reserved]

    def set_deadline(self, seconds: float) -> None:
        """A stop gives them so long."""
        self._deadline = monotonic() + seconds

    def hurry(self) -> None:
        """A stop that is under way waits no longer for them."""
        self._deadline = 0.0

    def stop(self) -> None:
        """Wait for them until the deadline, then raise Shutdown in those that are left and wait for the grace."""
        if self._wait_until_idle(lambda: self._deadline):
            return
        if self._state.busy:
            _log.info("The time for jobs to finish is up: raising Shutdown in %s", counted(self._state.busy, "job"))
        for manager in self._managers:
            manager.interrupt()
        if self._loop is not None:
            self._loop.shut_down_jobs()
        end = monotonic() + _GRACE_SECONDS
        if not self._wait_until_idle(lambda: end) and self._state.busy:
            count = counted(self._state.busy, "job")
            _log.warning("Shutdown was not heeded by %s; what it did not stop goes back to its queue", count)

    def may_be_left(self) -> bool:
        """None runs, or their time is over, grace included."""
        is_running = self._state.busy > 0 or self._is_loop_busy
        return not is_running or monotonic() >= self._deadline + _GRACE_SECONDS

    def _wait_until_idle(self, deadline: Callable[[], float]) -> bool:
        pause = threading.Event()
        while self._is_busy:
            if monotonic() >= deadline():
                return False
            pause.wait(_LOOK_SECONDS)
        return True

    @property
    def _is_busy(self) -> bool:
        # A job that was handed to the loop runs a moment later.
        return self._is_loop_busy or self._state.busy > 0 or not all(manager.is_idle for manager in self._managers)

    @property
    def _is_loop_busy(self) -> bool:
        return self._loop is not None and self._loop.running > 0
