"""
Ends of jobs that Redis refuses for now, tried again aside.

A set of a foreign type, or a command that this user may not give, is no outage that goes by: a thread that waited for
it would be lost to all other jobs. So the thread goes on, and the end is handed in when somebody has repaired what is
wrong. Until then the job stays in flight, and its owner's: nobody else runs it.
"""

import logging
import threading
from collections.abc import Callable

from sidekiq_py.clock import Wakeable
from sidekiq_py.engine.background import background_thread

_log = logging.getLogger("sidekiq")

_PAUSE_SECONDS = 1.0


class Deferred:
    """
    Calls what was put off about once a second each, until it raises no more, in a thread that lives as long as needed.

    Args:
        is_given_up: The process leaves: nothing is tried any more, and the jobs go back to their queues.
    """

    def __init__(self, is_given_up: Callable[[], bool]) -> None:
        self._is_given_up = is_given_up
        self._ends: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._pause = Wakeable()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, end: Callable[[], object]) -> None:
        """Try *end* from now on; it may raise any error."""
        with self._lock:
            self._ends.append(end)
            if self._thread is None:
                self._thread = background_thread("sidekiq.deferred", self._run)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; what is left is left in flight."""
        self._pause.wake()

    def _run(self) -> None:
        while not self._pause.wait(_PAUSE_SECONDS) and not self._is_given_up():
            with self._lock:
                ends = list(self._ends)
            left = [end for end in ends if not self._is_done(end)]
            with self._lock:
                self._ends = left + self._ends[len(ends) :]
                if not self._ends:
                    self._thread = None
                    return

    @staticmethod
    def _is_done(end: Callable[[], object]) -> bool:
        try:
            end()
        except Exception as error:  # noqa: BLE001 — it is tried again, whatever it is
            _log.debug("a job's end is still refused: %s", error)
            return False
        return True
