"""
Decides by load how many processes or threads a worker should have, between a minimum and a maximum.

The worker grows as soon as there are more jobs than it can run at once, and shrinks when there were fewer for some
time.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """
    The load of a worker at one moment.

    Args:
        size: How many jobs it can run at once.
        busy: How many jobs it runs.
        waiting: How many jobs wait in its queues.
    """

    size: int
    busy: int
    waiting: int


class ScalingPolicy:
    """
    Chooses a size each time it is given the load.

    Args:
        most, least: The bounds of the size, each at least 1.
        keepalive_seconds: The size shrinks after the worker needed less for this long, to the most that it needed in
            that time.
    """

    def __init__(self, most: int, least: int = 1, *, keepalive_seconds: float = 30.0) -> None:
        self.most = max(most, 1)
        self.least = min(max(least, 1), self.most)
        self._keepalive_seconds = keepalive_seconds
        self._idle_since: float | None = None
        self._peak = 0

    def __repr__(self) -> str:
        return f"<ScalingPolicy {self.least} to {self.most}>"

    def change(self, most: int | None = None, least: int | None = None) -> None:
        """Change the bounds. If they conflict, the bound that is not given moves; if both are, `least` wins."""
        if most is not None:
            self.most = max(most, 1)
            self.least = min(self.least, self.most)
        if least is not None:
            self.least = max(least, 1)
            self.most = max(self.most, self.least)

    def wanted(self, load: Load, now: float) -> int:
        """
        The size that the worker should have.

        Args:
            load: The current load.
            now: The current time on the monotonic clock.
        """
        needed = load.busy + load.waiting
        if load.size < self.least or needed >= load.size:
            self._idle_since = None
            return min(max(needed, load.size, self.least), self.most)
        if self._idle_since is None:
            self._idle_since, self._peak = now, needed
        self._peak = max(self._peak, needed)
        size = load.size
        if now - self._idle_since >= self._keepalive_seconds:
            size = self._peak
            self._idle_since, self._peak = now, needed
        return min(max(size, self.least), self.most)
