"""A child as the parent of `--processes N` sees it."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sidekiq_py.engine.family import LinePipe, Outbox

BY_SIGNAL = "signal:"


def terminated_by(signal_number: int) -> str:
    """Stands for an order to end a job, where the seconds of its hard limit would stand."""
    return f"{BY_SIGNAL}{signal_number}"


@dataclass(slots=True)
class Limit:
    """
    A job that runs under a hard limit, or is to be ended now.

    Args:
        seconds: The limit as the child has told it, or `terminated_by`.
        times_asked: How many children were asked to settle it.
    """

    seconds: str
    owner: str
    field: str
    due: float
    frozen_until: float | None = None
    times_asked: int = 0

    @property
    def reason(self) -> str:
        """Why its process is killed, for the log."""
        if self.seconds.startswith(BY_SIGNAL):
            return "a job is ended by remote control"
        return f"a job ran past its hard limit of {self.seconds} s"


@dataclass(slots=True, eq=False)
class Child:
    """A child as the parent sees it."""

    pid: int
    up: LinePipe
    down: Outbox
    born_at: float
    owners: list[str] = field(default_factory=list)
    limit: Limit | None = None
    is_ready: bool = False
    is_to_be_replaced: bool = False
    is_leaving: bool = False
    kill_at: float | None = None


def rss_kb_of(pid: int) -> int:
    """Resident memory of a process in KB; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
