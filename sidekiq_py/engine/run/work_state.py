"""What runs in this process: one object, made by the launcher, written by processors, read by heartbeat and stop."""

import time
from dataclasses import dataclass

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork


@dataclass(frozen=True, slots=True)
class RunningJob:
    """
    One job that runs.

    Args:
        tid: Of the thread or loop slot.
        started_at: Epoch seconds.
    """

    tid: str
    unit: UnitOfWork
    started_at: float


class WorkState:
    """
    Who runs what.

    Attributes:
        running: tid to the job and its start on the monotonic clock. Each tid is written by its own thread alone, so no
            lock is needed on a job's way.
    """

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running: dict[str, tuple[UnitOfWork, float]] = {}

    def __repr__(self) -> str:
        return f"<WorkState busy={len(self.running)}>"

    @property
    def busy(self) -> int:
        """How many jobs run."""
        return len(self.running)

    def snapshot(self) -> list[RunningJob]:
        """What runs now."""
        to_epoch = time.time() - monotonic()
        return [RunningJob(tid, unit, started + to_epoch) for tid, (unit, started) in list(self.running.items())]
