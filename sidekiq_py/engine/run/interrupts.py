"""
Exceptions raised in a running job from outside: the soft time limit, Shutdown at the deadline of a stop, and Terminated
when someone ends the job with a signal.

CPython can raise an exception in another thread. It takes effect at some later instruction, so it may be armed only
while the job itself runs: never while the job is being settled, and never in the next job. A thread that blocks in C
code (a database driver, `time.sleep`) gets the exception when that call returns. If the job runs in the main thread, a
signal makes the call return early, and the exception is raised in that signal's handler.
"""

import ctypes
import heapq
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.background import background_thread, started
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.signals import WAKE, has_handler_of_program, is_watched
from sidekiq_py.errors import Shutdown, SoftTimeLimitError


class Terminated(SystemExit):
    """Raised in a job that someone ends with a signal: its `finally` blocks run, and then its process is replaced."""


class _Absorbed(BaseException):
    """Takes the place of an exception that has not taken effect."""


INTERRUPTS = (Shutdown, SoftTimeLimitError, Terminated, _Absorbed)

# The signals that raise SystemExit in a Celery process (billiard 4.3, common.py, TERMSIGS_DEFAULT), and those that end
# it silently but mean something else to our workers.
_ENDS_THE_JOB = frozenset((signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2))

# With this many limits it is worth checking which of their jobs still run.
_MANY_LIMITS = 256

# A single signal may arrive just before the system call that it should interrupt.
_WAKE_AGAIN_SECONDS = (0.05, 0.2, 1.0)

_set_async_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc

# Up to Python 3.11, a thread that has not begun to run has the id of the thread that starts it. These are such threads.
_STARTING: Any = (getattr(threading, "_limbo", {}) if sys.version_info < (3, 12) else {}).keys()
_LONGEST_START_SECONDS = 1.0
# Those that never will: an exception cut their start short, and they stay among the others for good.
_NEVER_BEGAN: set[threading.Thread] = set()


class Guard:
    """
    Decides when one processor thread may be interrupted.

    The thread sets and clears `performing` without a lock, because every job does it. An interrupter first sets
    `is_requested`, then reads `performing`; the thread first clears `performing`, then reads `is_requested`. So one of
    them always sees the other, and the thread then waits for the interrupter in `absorb`.
    """

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        self._thread_id = threading.get_ident()
        self._is_main_thread = threading.current_thread() is threading.main_thread()
        self.performing: UnitOfWork | None = None
        self.is_requested = False
        self.terminated: UnitOfWork | None = None
        # About the terminated job: the signal it was sent after another process had settled it, and whether Terminated
        # was raised in it.
        self._sent_signal: int | None = None
        self._has_raised = False

    def interrupt(self, unit: UnitOfWork, kind: type[BaseException]) -> bool:
        """
        Raise *kind* in the thread if it performs *unit*. Call it from any other thread.

        Returns:
            False if the thread does not perform *unit*.
        """
        with self._lock:
            self.is_requested = True
            if self.performing is not unit:
                return False
            thread_count = _raise_in(self._thread_id, kind)
        if self._is_main_thread:
            try:
                threading.Thread(target=self._wake, args=(unit,), name="sidekiq.wake", daemon=True).start()
            except RuntimeError:
                # The system allows no more threads, so a single signal has to do.
                signal.pthread_kill(self._thread_id, WAKE)
        return thread_count == 1

    def _wake(self, unit: UnitOfWork) -> None:
        """Interrupt the job's system call. Python resumes the call if there is no exception to raise by then."""
        for pause in (*_WAKE_AGAIN_SECONDS, 0.0):
            if self.performing is not unit:
                return
            signal.pthread_kill(self._thread_id, WAKE)
            threading.Event().wait(pause)

    def terminate(self, unit: UnitOfWork, notify: Callable[[], None]) -> bool:
        """
        Call *notify* if the thread performs *unit*; the job cannot end meanwhile. Call it from any other thread.

        When the job ends, its thread finds it in `terminated` and calls `pardon`.

        Returns:
            False if the thread does not perform *unit*.
        """
        with self._lock:
            self.is_requested = True
            if self.performing is not unit:
                return False
            notify()
            self.terminated = unit
            return True

    def pardon(self) -> tuple[int | None, bool]:
        """
        Reset the state of the terminated job, which has ended. Called by the thread itself, after `absorb`.

        Returns:
            The signal that the job was sent, or None if no other process has settled it; and whether Terminated was
            raised in it.
        """
        said = self._sent_signal, self._has_raised
        self.terminated = self._sent_signal = None
        self._has_raised = False
        return said

    def send_signal(self, number: int, send: Callable[[int], None]) -> None:
        """
        Deliver a signal to the terminated job, which another process has settled. The job may survive it.

        A signal that ends a Celery process raises Terminated, unless the program has its own handler for it. Any other
        signal is sent and has its usual effect, except signals that our workers would act on themselves: those are not
        sent and the job goes on, as it does in Celery at SIGINT. Call it from any other thread.
        """
        with self._lock:
            unit = self.terminated
            if unit is None or self.performing is not unit:
                return
            self._sent_signal = number
            is_exit = number in _ENDS_THE_JOB and not has_handler_of_program(number)
            self._has_raised = self._has_raised or is_exit
            if not is_exit and not is_watched(number):
                send(number)
        if is_exit:
            self.interrupt(unit, Terminated)

    def absorb(self) -> None:
        """
        Cancel an exception that was raised from outside and has not taken effect. None can arrive until the next job.

        The exception may still arrive while this method is being called: the caller catches it and calls again.
        """
        lock = self._lock
        while True:
            try:
                lock.acquire()
                self.is_requested = False
                self._raise_absorbed()
            except _Absorbed:
                break
            except INTERRUPTS:
                continue
        # The job is no longer performing, so nothing more is raised. An exception may have left the lock held: Python
        # 3.14.8 also checks for exceptions between taking a lock and entering the block of `with`. Of 460 in a loop,
        # 13 left the lock held, and this thread then deadlocked on itself.
        while lock._is_owned():
            lock.release()

    def _raise_absorbed(self) -> NoReturn:
        # Cancelled with NULL instead, the flag "there is an exception to raise" would stay set in the whole process, up
        # to Python 3.12. Function calls are then slower by half in 3.12, and 3.11 loops for good at the next one under
        # a debugger or a coverage tool. Again and again, because it is lost if it is raised in a finalizer.
        while True:
            _set_async_exception(ctypes.c_ulong(self._thread_id), ctypes.py_object(_Absorbed))


def _raise_in(thread_id: int, kind: type[BaseException]) -> int:
    """
    Raise *kind* in a thread, and not in one that it is starting: that one would die at its first instruction, and
    `Thread.start` would wait for it for ever.

    Returns:
        How many threads there are with this id.
    """
    number, error = ctypes.c_ulong(thread_id), ctypes.py_object(kind)
    waited_for = list(_STARTING)
    give_up_at = monotonic() + _LONGEST_START_SECONDS
    # The comparison calls no Python code, so no other thread runs between the last one and the exception.
    while not _STARTING <= _NEVER_BEGAN:
        if monotonic() >= give_up_at:
            _NEVER_BEGAN.update(thread for thread in waited_for if thread in _STARTING)
            break
        time.sleep(0.001)
    return _set_async_exception(number, error)  # type: ignore[no-any-return]


# When it is due, its number, and the arguments of `SoftLimits.watch`.
_Limit = tuple[float, int, Guard, UnitOfWork, type[SoftTimeLimitError], Callable[[], None] | None]


class SoftLimits:
    """Interrupts jobs that run past their soft limit. Its thread starts with the first such job."""

    def __init__(self) -> None:
        # Shutdown may strike in a job that takes it. `with` on the Condition itself, which is written in Python, would
        # then leave it taken.
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._heap: list[_Limit] = []
        self._clear_at = _MANY_LIMITS
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def watched(self) -> int:
        """The number of limits kept, including some of jobs that have ended."""
        return len(self._heap)

    def watch(
        self,
        guard: Guard,
        unit: UnitOfWork,
        seconds: float,
        error: type[SoftTimeLimitError] = SoftTimeLimitError,
        report: Callable[[], None] | None = None,
    ) -> None:
        """
        Raise *error* in *unit* if *guard*'s thread still performs it after *seconds*, and then call *report*.

        Raises:
            RuntimeError: The system allows no more threads, so the limit could not be enforced.
        """
        with self._lock:
            if self._thread is None:
                self._thread = started(background_thread("sidekiq.limits", self._run))
            if len(self._heap) >= self._clear_at:
                self._drop_ended()
            heapq.heappush(self._heap, (monotonic() + seconds, next(self._order), guard, unit, error, report))
            self._change.notify()

    def close(self) -> None:
        """Ask the thread to exit."""
        with self._lock:
            self._is_closed = True
            self._change.notify()

    def _drop_ended(self) -> None:
        # Otherwise one long job at the top would keep the limits and payloads of all jobs that ran after it.
        self._heap = [entry for entry in self._heap if entry[2].performing is entry[3]]
        heapq.heapify(self._heap)
        self._clear_at = max(_MANY_LIMITS, 2 * len(self._heap))

    def _run(self) -> None:
        while (limit := self._next_due()) is not None:
            _, _, guard, unit, error, report = limit
            # Without the lock, because a report may take its time.
            if guard.interrupt(unit, error) and report is not None:
                report()

    def _next_due(self) -> _Limit | None:
        """Wait until a job reaches its limit. Returns None when the thread is to exit."""
        with self._lock:
            while not self._is_closed:
                # Jobs that ended in time are dropped here rather than searched for when they end.
                while self._heap and self._heap[0][2].performing is not self._heap[0][3]:
                    heapq.heappop(self._heap)
                if not self._heap:
                    self._change.wait()
                    continue
                pause = self._heap[0][0] - monotonic()
                if pause <= 0:
                    return heapq.heappop(self._heap)
                self._change.wait(pause)
        return None
