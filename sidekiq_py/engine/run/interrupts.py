"""
Exceptions that come from outside into a running job: the soft time limit, and Shutdown at the deadline of a stop.

CPython can have an exception raised in another thread. It strikes at some later instruction, so it must be armed only
while the job itself runs: never while the job is being settled, and never in the next one. A thread that blocks in C
code (a database driver, `time.sleep`) is struck when it comes back. Where a job runs in the main thread, a signal has
it come back: the exception then strikes in that signal's handler.
"""

import ctypes
import heapq
import itertools
import signal
import threading
from collections.abc import Callable

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.signals import WAKE
from sidekiq_py.errors import Shutdown, SoftTimeLimitError

INTERRUPTS = (Shutdown, SoftTimeLimitError)

# With so many limits it is worth a look which of their jobs still run.
_MANY_LIMITS = 256

# One signal may come just before the system call that it is to interrupt.
_WAKE_AGAIN_SECONDS = (0.05, 0.2, 1.0)

_set_async_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Guard:
    """
    What one processor thread opens for interrupts, and when.

    The thread sets `performing` and clears it without a lock, as this stands on every job's way. An interrupter first
    raises `is_requested`, then looks at `performing`; the thread first clears `performing`, then looks at
    `is_requested`. So one of them always sees the other, and the thread then waits for the interrupter in `absorb`.
    """

    __slots__ = ("_is_main_thread", "_lock", "_thread_id", "is_requested", "is_terminated", "performing")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_id = threading.get_ident()
        self._is_main_thread = threading.current_thread() is threading.main_thread()
        self.performing: UnitOfWork | None = None
        self.is_requested = False
        self.is_terminated = False

    def interrupt(self, unit: UnitOfWork, kind: type[BaseException]) -> bool:
        """Raise *kind* in the thread if it performs *unit*. From any other thread."""
        with self._lock:
            self.is_requested = True
            if self.performing is not unit:
                return False
            struck: int = _set_async_exception(ctypes.c_ulong(self._thread_id), ctypes.py_object(kind))
        if self._is_main_thread:
            threading.Thread(target=self._wake, args=(unit,), name="sidekiq.wake", daemon=True).start()
        return struck == 1

    def _wake(self, unit: UnitOfWork) -> None:
        """Have the job's system call end early. A call that goes on after it, as nothing is to strike, goes on."""
        for pause in (*_WAKE_AGAIN_SECONDS, 0.0):
            if self.performing is not unit:
                return
            signal.pthread_kill(self._thread_id, WAKE)
            threading.Event().wait(pause)

    def terminate(self, unit: UnitOfWork, tell: Callable[[], None]) -> bool:
        """
        Call *tell* if the thread performs *unit*, which cannot end meanwhile. When it ends it finds `is_terminated`.
        From any other thread.
        """
        with self._lock:
            self.is_requested = True
            if self.performing is not unit:
                return False
            tell()
            self.is_terminated = True
            return True

    def absorb(self) -> None:
        """
        Take back what was raised and has not struck yet. Afterwards nothing strikes until the next job.

        It may strike in the call of this method: whoever calls catches that and calls again.
        """
        while True:
            try:
                with self._lock:
                    self.is_requested = False
                    _set_async_exception(ctypes.c_ulong(self._thread_id), None)
                return
            except INTERRUPTS:
                continue


class SoftLimits:
    """Interrupts jobs that run past their soft limit. Its thread starts with the first such job."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._heap: list[tuple[float, int, Guard, UnitOfWork, type[SoftTimeLimitError]]] = []
        self._clear_at = _MANY_LIMITS
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def watched(self) -> int:
        """How many limits are kept, those of some jobs among them that have ended."""
        return len(self._heap)

    def watch(
        self, guard: Guard, unit: UnitOfWork, seconds: float, error: type[SoftTimeLimitError] = SoftTimeLimitError
    ) -> None:
        """Raise *error* in *unit* if *guard*'s thread still performs it in *seconds*."""
        with self._change:
            if len(self._heap) >= self._clear_at:
                self._drop_ended()
            heapq.heappush(self._heap, (monotonic() + seconds, next(self._order), guard, unit, error))
            if self._thread is None:
                self._thread = background_thread("sidekiq.limits", self._run)
                self._thread.start()
            self._change.notify()

    def close(self) -> None:
        """Let the thread end."""
        with self._change:
            self._is_closed = True
            self._change.notify()

    def _drop_ended(self) -> None:
        # One long job at the top would otherwise keep the limits, and payloads, of all that ran after it.
        self._heap = [entry for entry in self._heap if entry[2].performing is entry[3]]
        heapq.heapify(self._heap)
        self._clear_at = max(_MANY_LIMITS, 2 * len(self._heap))

    def _run(self) -> None:
        with self._change:
            while not self._is_closed:
                # Jobs that ended in time are dropped here rather than searched for when they end.
                while self._heap and self._heap[0][2].performing is not self._heap[0][3]:
                    heapq.heappop(self._heap)
                if not self._heap:
                    self._change.wait()
                    continue
                due, _, guard, unit, error = self._heap[0]
                pause = due - monotonic()
                if pause > 0:
                    self._change.wait(pause)
                    continue
                heapq.heappop(self._heap)
                guard.interrupt(unit, error)
