"""
Retries, in the background, the ends of jobs that Redis refuses for now.

A key of the wrong type, or a command that this Redis user may not run, is not an outage that passes. A thread that
waited for it would be lost to all other jobs. So the thread goes on, and the end is sent once the cause has been fixed.
Until then the job stays in flight under its owner, so no other process runs it.
"""

import threading
from collections.abc import Callable

from sidekiq_py.engine.background import background_thread, started
from sidekiq_py.errors import RedisError
from sidekiq_py.logs import log

_PAUSE_SECONDS = 1.0
# While the key of `retry` has a wrong type, each job that fails is one more end that is refused. All of them together,
# every second, kept Redis and this process ever busier: 4,500 commands a second for 3,000 ends.
_MOST_REFUSALS = 20


class Deferred:
    """
    Calls the deferred functions in turn until they no longer raise, in a thread that lives as long as needed. Once a
    second it goes through all of them, but stops when it has been refused often enough, and next goes on from there.

    Args:
        is_given_up: Returns True when the process is exiting. Nothing is retried then, and the jobs go back to their
            queues.
    """

    def __init__(self, is_given_up: Callable[[], bool]) -> None:
        self._is_given_up = is_given_up
        # Each with whether its last refusal passes by itself, as during a failover.
        self._ends: list[tuple[Callable[[], object], bool]] = []
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def is_waiting_for_redis(self) -> bool:
        """True while one of the ends is refused for a reason that passes by itself."""
        return any(passes for _, passes in self._ends)

    def add(self, end: Callable[[], object], refusal: RedisError) -> bool:
        """
        Retry *end*, which Redis refused with *refusal*, from now on. It may raise any error.

        Returns:
            False if the system allows no more threads: the caller has to retry it.
        """
        with self._lock:
            if self._thread is None:
                try:
                    self._thread = started(background_thread("sidekiq.deferred", self._run))
                except RuntimeError:
                    return False
            self._ends.append((end, not refusal.is_lasting))
            return True

    def stop(self) -> None:
        """End the thread. Jobs whose end is still deferred stay in flight."""
        self._pause.set()

    def _run(self) -> None:
        while not self._pause.wait(_PAUSE_SECONDS) and not self._is_given_up():
            self._turn()
            with self._lock:
                if not self._ends:
                    self._thread = None
                    return

    def _turn(self) -> None:
        with self._lock:
            # A stop waits for those whose refusal passes, so they must not wait behind thousands of others. The list
            # is not sorted in place, since it would look empty meanwhile to the thread that asks whether to wait.
            self._ends = ends = sorted(self._ends, key=lambda end: not end[1])
        left = []
        tried = 0
        for end, _ in ends:
            tried += 1
            failure = self._tried(end)
            if failure is not None:
                left.append((end, isinstance(failure, RedisError) and not failure.is_lasting))
                if len(left) == _MOST_REFUSALS:
                    break
        with self._lock:
            self._ends = self._ends[tried:] + left

    @staticmethod
    def _tried(end: Callable[[], object]) -> Exception | None:
        try:
            end()
        except Exception as error:  # noqa: BLE001 — any error leads to another try
            log.debug("a job's result is still refused: %s", error)
            return error
        return None
