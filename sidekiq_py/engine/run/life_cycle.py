"""How far a worker process is between its start and its end."""

import threading


class LifeCycle:
    """
    What has begun stays so.

    Attributes:
        has_started: All its parts run.
        is_quieting: It fetches no more; what was fetched and has not started goes back.
        is_quiet: That is done: a job that is pushed from here on is not started.
        is_stopping: It was told to stop.
    """

    __slots__ = ("_lock", "has_started", "is_quiet", "is_quieting", "is_stopping")

    def __init__(self) -> None:
        self.has_started = self.is_quieting = self.is_quiet = self.is_stopping = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        begun = [name for name in self.__slots__[1:] if getattr(self, name)]
        return f"<LifeCycle {' '.join(begun) or 'starting'}>"

    def begin_quiet(self) -> bool:
        """The process is to fetch no more; False if it was told so before."""
        with self._lock:
            is_first = not self.is_quieting
            self.is_quieting = True
            return is_first
