"""The state of a worker process between its start and its end."""

import threading


class LifeCycle:
    """
    The states that a process has reached. A flag that is set is never cleared.

    Attributes:
        has_started: True once all parts of the process run.
        is_quieting: True once the process fetches no more jobs; fetched jobs that have not started go back.
        is_quiet: True once that is done: a job pushed from then on does not start here.
        is_stopping: True once the process was asked to stop.
    """

    __slots__ = ("_lock", "has_started", "is_quiet", "is_quieting", "is_stopping")

    def __init__(self) -> None:
        self.has_started = self.is_quieting = self.is_quiet = self.is_stopping = False
        self._lock = threading.Lock()

    def begin_quiet(self) -> bool:
        """Record that the process stops fetching. Returns False if that was recorded before."""
        with self._lock:
            is_first = not self.is_quieting
            self.is_quieting = True
            return is_first
