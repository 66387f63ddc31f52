"""
The jobs that run in this process, in one object: the launcher creates it, processors write to it, and the heartbeat and
the shutdown read it.
"""

import time
from typing import NamedTuple

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork


class RunningJob(NamedTuple):
    """
    A running job.

    Args:
        tid: The tid of its thread or event-loop slot.
        started_at: Seconds since the epoch.
    """

    tid: str
    unit: UnitOfWork
    started_at: float


class WorkState:
    """
    Which thread or event-loop slot runs which job.

    Attributes:
        running: tid to the job and its start on the monotonic clock. Only its own thread writes a tid's entry, so
            starting and ending a job needs no lock.
    """

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running: dict[str, tuple[UnitOfWork, float]] = {}

    @property
    def busy(self) -> int:
        """The number of running jobs."""
        return len(self.running)

    def snapshot(self) -> list[RunningJob]:
        """The jobs that run now."""
        to_epoch = time.time() - monotonic()
        return [RunningJob(tid, unit, started + to_epoch) for tid, (unit, started) in list(self.running.items())]
