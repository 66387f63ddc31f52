"""
Where idle processors wait.

A `threading.Condition` for one purpose: waking somebody is one release of a lock, which is a third of what `notify`
costs, and it stands in the way of a job that has just arrived.
"""

import threading
from collections import deque
from types import TracebackType


class IdleWorkers:
    """
    A lock with places to wait. Everything but `with` needs the lock.

    Whoever parked last is woken first: its stack and its connection are still warm.
    """

    __slots__ = ("_mutex", "_parked")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._parked: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mutex.release()

    def park(self) -> None:
        """Let go of the lock until woken, then take it again."""
        place = threading.Lock()
        place.acquire()
        self._parked.append(place)
        self._mutex.release()
        try:
            place.acquire()
        finally:
            self._mutex.acquire()

    def wake_all(self) -> None:
        """Wake everybody."""
        self.wake(len(self._parked))

    def wake(self, count: int) -> None:
        """Wake up to *count* of those that wait."""
        for _ in range(min(count, len(self._parked))):
            self._parked.pop().release()
