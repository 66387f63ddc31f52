"""
Runs the maintenance tasks of the fleet and of the extensions in the process that holds the poller's lease.

Each extension has a thread of its own. So a task that takes long or never ends holds up neither due jobs, nor the
lease, nor another extension. A task that raises is reported and runs again after the next pause.
"""

import threading
from collections.abc import Callable, Iterable

from sidekiq_py import clock
from sidekiq_py.engine.background import background_thread, started, wait_for_end
from sidekiq_py.engine.downtime import Outage
from sidekiq_py.extension import Maintenance
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.telemetry import Report

# How often a process without the lease checks whether it holds it by now.
_LOOK_SECONDS = 0.5


class MaintenanceThread:
    """
    Runs maintenance tasks in a thread. Starting does not block; ending twice, or before a start, is fine.

    Args:
        name: The name of the tasks' owner, such as an extension.
        tasks: The tasks to run.
        is_ours: Returns True while this process holds the lease.
        report: Called with an error and its context.
        monotonic: Returns the time in monotonic seconds.
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
        self._due = [_Task(task, Outage(report, f"Error in maintenance ({task.name})")) for task in tasks]
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if there are any tasks."""
        if self._thread is None and self._due:
            self._thread = started(background_thread(f"sidekiq.maintenance.{self._name}", self._run))

    def end(self) -> None:
        """End the thread after the task that runs now. Does not block."""
        self._end.set()

    def join(self) -> None:
        """Wait for the thread's end, but not forever: a task may hang."""
        wait_for_end(self._thread, self._pool.join_seconds)

    def turn(self) -> float:
        """Run the tasks that are due. Returns the seconds until the next turn."""
        if not self._is_ours():
            return _LOOK_SECONDS
        for task in self._due:
            # Checked before each task: if the previous one took long, another process may hold the lease by now.
            if self._monotonic() >= task.at and not self._end.wait(0) and self._is_ours():
                task.at = self._monotonic() + self._round(task)
        return max(0.0, min(task.at for task in self._due) - self._monotonic())

    def _run(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            pause = self.turn()

    def _round(self, task: "_Task") -> float:
        """Run one task. Returns the pause after it."""
        try:
            sooner = task.about.run(self._pool)
            pause = task.about.every_seconds if sooner is None else min(task.about.every_seconds, max(0.0, sooner))
        # Also `sys.exit()`: it would restart the thread with this very task, and no other task would ever run.
        except BaseException as error:  # noqa: BLE001 — the thread must survive whatever an extension does
            return max(task.about.every_seconds, task.outage.failed(error))
        task.outage.over()
        return pause


class _Task:
    """A maintenance task, and when it is due."""

    __slots__ = ("about", "at", "outage")

    def __init__(self, about: Maintenance, outage: Outage) -> None:
        self.about = about
        self.outage = outage
        self.at = float("-inf")
