"""Records when a loop's next turn is due. This distinguishes a process that hangs from one that waits."""

import math

from sidekiq_py.clock import monotonic


class Pulse:
    """The pulse of one thread's loop."""

    __slots__ = ("_due_at",)

    def __init__(self) -> None:
        self._due_at = math.inf

    def waits(self, seconds: float) -> float:
        """Note that the loop has turned and will turn again after *seconds*. Returns *seconds*."""
        self._due_at = monotonic() + seconds
        return seconds

    def rests(self) -> None:
        """Note that the loop will turn again at an unknown time, when there is a reason to."""
        self._due_at = math.inf

    @property
    def overdue_seconds(self) -> float:
        """How long ago the loop should have turned. Negative while it waits, rests, or has not started."""
        return monotonic() - self._due_at
