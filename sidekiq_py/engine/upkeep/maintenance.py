"""
Runs the maintenance of the fleet, the extensions' included, in the process that has the poller's lease.

Each extension has a thread of its own, so that a round that takes long, or never ends, holds up neither due jobs nor
the lease nor another extension. A round that raises is reported, and comes again with the next pause.
"""

import threading
from collections.abc import Callable, Iterable

from sidekiq_py import clock
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.downtime import Outage, Report
from sidekiq_py.extension import Maintenance
from sidekiq_py.redis_access.connection.pool import Pool

# How often a process that has no lease looks whether it has one by now.
_LOOK_SECONDS = 0.5


class MaintenanceThread:
    """
    Starting does not block; ending twice, or before a start, is fine.

    Args:
        name: Whose tasks these are.
        tasks: What is to be done.
        is_ours: This process has the lease.
        report: Takes an error and its context.
        monotonic: Seconds that never go back.
    """

    def __init__(
        self,
        name: str,
        tasks: Iterable[Maintenance],
        pool: Pool,
        *,
        is_ours: Callable[[], bool],
        report: Report,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._name = name
        self._pool = pool
        self._is_ours = is_ours
        self._monotonic = monotonic
        self._due = [_Task(task, Outage(report, f"Error in the maintenance of {task.name}")) for task in tasks]
        self._end = clock.Wakeable()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<MaintenanceThread {[task.about.name for task in self._due]}>"

    def start(self) -> None:
        """Start the thread, if there is anything to do."""
        if self._thread is None and self._due:
            self._thread = background_thread(f"sidekiq.maintenance.{self._name}", self._run)
            self._thread.start()

    def end(self) -> None:
        """End it after the round at hand. Does not block."""
        self._end.wake()

    def join(self) -> None:
        """Wait for its end; a round that hangs is not waited for."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._pool.join_seconds)

    def turn(self) -> float:
        """Do what is due; the seconds until the next turn."""
        if not self._is_ours():
            return _LOOK_SECONDS
        for task in self._due:
            # Asked before each: while another one took long, the lease may have passed on.
            if self._monotonic() >= task.at and not self._end.wait(0) and self._is_ours():
                task.at = self._monotonic() + self._round(task)
        return max(0.0, min(task.at for task in self._due) - self._monotonic())

    def _run(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            pause = self.turn()

    def _round(self, task: "_Task") -> float:
        """One round; the pause behind it."""
        try:
            sooner = task.about.run(self._pool)
            pause = task.about.every_seconds if sooner is None else min(task.about.every_seconds, max(0.0, sooner))
        # Also `sys.exit()`: the thread would begin anew with this very task, and no other would ever have its turn.
        except BaseException as error:  # noqa: BLE001 — the thread must outlive whatever an extension does
            return max(task.about.every_seconds, task.outage.failed(error))
        task.outage.over()
        return pause


class _Task:
    """A piece of work, and when it is due."""

    __slots__ = ("about", "at", "outage")

    def __init__(self, about: Maintenance, outage: Outage) -> None:
        self.about = about
        self.outage = outage
        self.at = float("-inf")
