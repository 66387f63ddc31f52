"""When a loop of this process is to turn next: what tells a process that hangs from one that waits."""

import math

from sidekiq_py.clock import monotonic


class Pulse:
    """Of one thread's loop."""

    __slots__ = ("_due_at",)

    def __init__(self) -> None:
        self._due_at = math.inf

    def waits(self, seconds: float) -> float:
        """The loop has turned, and turns again after *seconds*, which are returned."""
        self._due_at = monotonic() + seconds
        return seconds

    def rests(self) -> None:
        """The loop turns again when there is a reason to, and nobody knows when."""
        self._due_at = math.inf

    @property
    def overdue_seconds(self) -> float:
        """How long ago the loop should have turned; below 0 while it waits, rests, or has not started."""
        return monotonic() - self._due_at
