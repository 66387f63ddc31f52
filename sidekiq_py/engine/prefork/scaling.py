"""
How many processes, or threads, a worker should have: between a least and a most, by what it has to do.

It grows as soon as there is more to do than it can run at once, and shrinks when for some time there was less.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """
    What a worker has to do at one instant.

    Args:
        size: How many jobs it can run at once.
        busy: How many it runs.
        waiting: How many wait in its queues.
    """

    size: int
    busy: int
    waiting: int


class ScalingPolicy:
    """
    Decides on a size from one look to the next.

    Args:
        most, least: What it stays between; at least 1 each.
        keepalive_seconds: It shrinks when it could have done with less for so long, to the most that it needed then.
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
        """Stay between other numbers; the one that is named wins over the other."""
        if most is not None:
            self.most = max(most, 1)
            self.least = min(self.least, self.most)
        if least is not None:
            self.least = max(least, 1)
            self.most = max(self.most, self.least)

    def wanted(self, load: Load, now: float) -> int:
        """
        The size that it should have.

        Args:
            now: On the monotonic clock.
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
