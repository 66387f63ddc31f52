"""
What tells a worker to quiet, stop or show itself: signals of the system, and those that a Web UI left in Redis.

TSTP and USR1 quiet; TERM and INT stop, another one a second or more later without waiting for busy jobs;
TTIN dumps the threads; USR2 reopens log files. Source: Sidekiq 4.2 to 8.1.7, cli.rb.

Python calls handlers of signals in the main thread alone, and only once that comes back from C code. So the numbers of
signals are read as the system's own handler writes them (`signal.set_wakeup_fd`), by whichever thread waits for them:
the main one may run a job, or hang in what the program does as it starts.
"""

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

from sidekiq_py.engine.fetch.wake_pipe import wake_pipe

NAMES = ("TERM", "INT", "TSTP", "USR1", "USR2", "TTIN")

USR1_DUMPS = {"USR1": "TTIN"}
"""Celery's meaning of USR1."""

WAKE = signal.SIGURG
"""
Has the main thread come back from C code, so that an exception which was raised there strikes. Nothing happens where it
comes too late: the system ignores it by itself.
"""

# Without what makes enumerations of its answers: of a function it took 6 µs to find that it is none.
_getsignal: Callable[[int], Any] = import_module("_signal").getsignal

_LEFT_BY_ASYNCIO = (signal.SIG_DFL, signal.default_int_handler)

# Signal to our handler and the one before it.
_watched: dict[int, tuple[Any, Any]] = {}
# By thread: the signals that were blocked before its fork.
_held = threading.local()


class SignalInbox:
    """
    Names of signals, put in from anywhere, read by one thread.

    Args:
        meanings: Signals of the system that are taken for others.
    """

    def __init__(self, meanings: Mapping[str, str] | None = None) -> None:
        self._meanings = meanings or {}
        self._names: deque[str] = deque()
        self._functions: dict[str, Callable[[], None]] = {}
        self._read_by_number: dict[int, str] = {}
        self._is_beside_jobs = False
        # Sent to the job that the main thread runs, and still to be passed over here.
        self._sent_to_job: deque[int] = deque()
        self._read_fd, self._write_fd = wake_pipe(self)

    def put(self, name: str) -> None:
        """Add a name. Safe in a signal handler and in any thread."""
        self._names.append(name.upper().removeprefix("SIG"))
        self._wake()

    def next(self, seconds: float | None = None) -> str | None:
        """The next name; waits for one, at most *seconds*."""
        while not self._names:
            if not select.select([self._read_fd], [], [], seconds)[0]:
                return None
            self._read()
            if seconds is not None and not self._names:
                return None
        return self._names.popleft()

    def has(self, *names: str) -> bool:
        """One of these has come and was not taken by `next`. In any thread, while no other one waits in `next`."""
        self._read()
        return any(name in self._names for name in names)

    @property
    def fd(self) -> int:
        """Readable when a name has come; for `select`."""
        return self._read_fd

    def _read(self) -> None:
        try:
            numbers = os.read(self._read_fd, 1024)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self._sent_to_job:
                self._sent_to_job.remove(number)
            elif number not in self._read_by_number:
                # A mark of `_wake`.
                continue
            elif self._is_beside_jobs or not has_handler_of_program(number):
                # What a program heeds by a function of its own is its own affair; a job decides for itself alone.
                self._take(self._read_by_number[number])

    def _wake(self) -> None:
        try:
            os.write(self._write_fd, b".")
        except BlockingIOError:
            pass

    def _take(self, name: str) -> None:
        function = self._functions.get(name)
        if function is not None:
            function()
        else:
            self._names.append(name)

    def call_at(self, name: str, function: Callable[[], None]) -> None:
        """Have *function* called at a signal of the system, by whoever reads the names. Before `watch`."""
        self._functions[name] = function

    def watch(self, more: Sequence[str] = (), *, beside_jobs: bool = False) -> None:
        """
        Take in the signals of the system, and *more*. Only in the main thread.

        Args:
            beside_jobs: The main thread will run jobs, and another one reads the names.
        """
        self._is_beside_jobs = beside_jobs

        def handle(number: int, frame: FrameType | None) -> None:
            others = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
            if others != self._write_fd:
                # asyncio runs in the main thread, and has the numbers written to a place of its own.
                signal.set_wakeup_fd(others)
                self._take(self._read_by_number[number])
            elif self._is_beside_jobs:
                return
            elif is_watched(number):
                # Now, before the program sets a function of its own, for which this signal was not sent.
                self._read()
            else:
                # The program's own function has called the one before it; the number is passed over.
                self._take(self._read_by_number[number])
            self._wake()

        for name in (*NAMES, *more, *self._functions):
            number = getattr(signal, f"SIG{name}")
            self._read_by_number[number] = self._meanings.get(name, name)
            _watched[number] = (handle, signal.signal(number, handle))
        if beside_jobs:
            _watched[WAKE] = (_ignore, signal.signal(WAKE, _ignore))
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def watch_again(self, *, thoroughly: bool = True) -> None:
        """
        After a program's code in the main thread: asyncio may have put its own handlers and taken them back.

        Args:
            thoroughly: Else nothing is done where our handlers are all there. They will hear of a signal once Python
                comes back from C code. After each job of a drain that has to do: Python lets go of its lock when it is
                asked where it writes signals, which was an eighth of a no-op task's time.
        """
        if not thoroughly and _are_all_watched():
            return
        if signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False) != self._write_fd:
            for number, (handler, _) in _watched.items():
                if self._is_beside_jobs or signal.getsignal(number) in _LEFT_BY_ASYNCIO:
                    signal.signal(number, handler)
            # asyncio has read them.
            self._sent_to_job.clear()

    def send_to_job(self, number: int) -> None:
        """Send a signal to the main thread, for the job that runs there and not for this inbox. From another thread."""
        if number in self._read_by_number and has_handler_of_program(number):
            # Only then the system tells us of it, too.
            self._sent_to_job.append(number)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)


def is_watched(number: int) -> bool:
    """A handler of ours heeds this signal."""
    return number in _watched and signal.getsignal(number) is _watched[number][0]


def _are_all_watched() -> bool:
    for number, (handler, _) in _watched.items():  # noqa: SIM110 — after each job; a generator takes twice as long
        if _getsignal(number) is not handler:
            return False
    return True


def has_handler_of_program(number: int) -> bool:
    """The program, or a job, heeds this signal by a function of its own."""
    return callable(signal.getsignal(number)) and not is_watched(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Only a handler in Python has a system call interrupted."""


def _hold_back() -> None:
    """Before a fork: no signal may reach the child before it has handlers of its own; Python would forget it."""
    if _watched:
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _watched)


def _let_through() -> None:
    """After a fork."""
    mask = getattr(_held, "mask", None)
    if mask is not None:
        _held.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _unwatch_in_child() -> None:
    """
    A forked process heeds signals as the program did before: its inbox is a copy that nobody reads.

    Otherwise a child of `--processes` would not hear TERM until its program is imported, and `multiprocessing` in a job
    could not terminate what it has started.
    """
    for number, (handler, before) in _watched.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.SIG_DFL if before is None else before)
    if _watched:
        signal.set_wakeup_fd(-1)
        _watched.clear()
    _let_through()


os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_unwatch_in_child)
