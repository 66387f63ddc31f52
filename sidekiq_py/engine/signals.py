"""
The signals that control a worker: those of the operating system, and those that a Web UI left in Redis.

TSTP and USR1 quiet the worker. TERM and INT stop it; another one a second or more later stops it without waiting for
busy jobs. TTIN dumps the threads. USR2 reopens the log files. Source: Sidekiq 4.2 to 8.1.7, cli.rb.

Python calls signal handlers only in the main thread, and only once that returns from C code. But the main thread may be
running a job, or hang in the program's start-up code. So the signal numbers are read by whichever thread waits for
them, from the file descriptor to which Python's C-level handler writes them (`signal.set_wakeup_fd`).
"""

import math
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

from sidekiq_py.engine.fetch.wake_pipe import wake_pipe
from sidekiq_py.errors import SidekiqError

if not hasattr(signal, "SIGURG"):
    raise SidekiqError("Workers need Unix signals, which Windows lacks: run them on Linux, in WSL or in a container.")

NAMES = ("TERM", "INT", "TSTP", "USR1", "USR2", "TTIN")

USR1_DUMPS = {"USR1": "TTIN"}
"""Celery's meaning of USR1."""

WAKE = signal.SIGURG
"""
Makes the main thread return from C code, so that an exception that was raised in it takes effect. It does no harm if it
arrives too late: by default, the system ignores this signal.
"""

# The C function, without the wrapper that turns results into enum members: given a function, that took 6 µs to find out
# that it is not one.
_getsignal: Callable[[int], Any] = import_module("_signal").getsignal

# As plain numbers, which are faster keys than members of an enumeration.
_TERM, _INT = int(signal.SIGTERM), int(signal.SIGINT)
# After a longer job, the 5 µs of setting the file descriptor do not matter.
_SHORT_SECONDS = 0.001
# Opening and closing an event loop took 120 µs. A shorter job may have replaced the handlers for TERM and INT, as many
# programs do, but no others.
_SHORTEST_LOOP_SECONDS = 0.00005
# How often to look for names once a job has closed the pipe, which would have told of them.
_LOOK_SECONDS = 0.05
_LEFT_BY_ASYNCIO = (signal.SIG_DFL, signal.default_int_handler)

# By signal number: our handler and the previous one.
_watched: dict[int, tuple[Any, Any]] = {}
# Per thread: the signals that were blocked before it forked.
_held = threading.local()


class SignalInbox:
    """
    A queue of signal names. Any thread may add to it; one thread reads it.

    Args:
        meanings: System signals to treat as other signals.

    Attributes:
        fd: A file descriptor for `select` that becomes readable when a name arrives.
    """

    def __init__(self, meanings: Mapping[str, str] | None = None) -> None:
        self._meanings = meanings or {}
        self._names: deque[str] = deque()
        self._functions: dict[str, Callable[[], None]] = {}
        self._read_by_number: dict[int, str] = {}
        self._is_beside_jobs = False
        self._numbers: list[int] = []
        self._handlers: list[Any] = []
        # Signals that were sent to the job in the main thread, and that this inbox still has to skip.
        self._sent_to_job: deque[int] = deque()
        self.fd, self._write_fd = wake_pipe(self)
        self._pipe = os.fstat(self.fd)

    def put(self, name: str) -> None:
        """Add a name. Safe to call from a signal handler and from any thread."""
        self._names.append(name.upper().removeprefix("SIG"))
        self._wake()

    def next(self, seconds: float | None = None) -> str | None:
        """Wait up to *seconds* for the next name and return it, or None if there is none."""
        while not self._names:
            if not self._has_pipe():
                time.sleep(_LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS))
            elif not select.select([self.fd], [], [], seconds)[0]:
                return None
            self._read()
            if seconds is not None and not self._names:
                return None
        return self._names.popleft()

    def has(self, *names: str) -> bool:
        """
        Returns True if one of these was received and not taken by `next`. Safe to call from any thread while no other
        thread waits in `next`.
        """
        self._read()
        return any(name in self._names for name in names)

    @property
    def is_closed(self) -> bool:
        """True once a job has closed both ends of the pipe, as one does that closes all files."""
        return not self._is_own(self.fd) and not self._is_own(self._write_fd)

    def _has_pipe(self) -> bool:
        """False once a job has closed an end of it, as a file that is closed twice can."""
        return self._is_own(self.fd) and self._is_own(self._write_fd)

    def _is_own(self, fd: int) -> bool:
        """False if the number is another file's or connection's by now, which must not be read from or written to."""
        try:
            return os.path.samestat(os.fstat(fd), self._pipe)
        except OSError:
            return False

    def _read(self) -> None:
        if not self._has_pipe():
            return
        try:
            numbers = os.read(self.fd, 1024)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self._sent_to_job:
                self._sent_to_job.remove(number)
            elif number not in self._read_by_number:
                # The byte that `_wake` wrote.
                continue
            elif self._is_beside_jobs or not has_handler_of_program(number):
                # A signal for which the program has a handler of its own is left to the program. But a handler that a
                # job sets counts for that job alone.
                self._take(self._read_by_number[number])

    def _wake(self) -> None:
        if not self._has_pipe():
            return
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
        """
        Call *function* when a system signal arrives, in the thread that reads the names. Has to be called before
        `watch`.
        """
        self._functions[name] = function

    def watch(self, more: Sequence[str] = (), *, beside_jobs: bool = False) -> None:
        """
        Start to receive the usual system signals, and *more*. Call it only from the main thread.

        Args:
            beside_jobs: The main thread will run jobs, and another thread reads the names.
        """
        self._is_beside_jobs = beside_jobs

        def handle(number: int, frame: FrameType | None) -> None:
            if not self._has_pipe():
                signal.set_wakeup_fd(-1)
                self._take(self._read_by_number[number])
                return
            others = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
            if others != self._write_fd:
                # asyncio runs in the main thread, and has the numbers written to its own file descriptor.
                self._take(self._read_by_number[number])
                try:
                    signal.set_wakeup_fd(others)
                except (OSError, ValueError):
                    # A job has closed it. Ours stays.
                    pass
            elif self._is_beside_jobs:
                return
            elif is_watched(number):
                # Read it now, before the program sets a handler of its own, for which this signal was not meant.
                self._read()
            else:
                # The program's own handler has called ours, which it replaced. The reader will skip the number.
                self._take(self._read_by_number[number])
            self._wake()

        for name in dict.fromkeys((*NAMES, *more, *self._functions)):
            number = getattr(signal, f"SIG{name}")
            self._read_by_number[number] = self._meanings.get(name, name)
            _watched[number] = (handle, signal.signal(number, handle))
        if beside_jobs:
            _watched[WAKE] = (_ignore, signal.signal(WAKE, _ignore))
        self._numbers = [int(number) for number in _watched]
        self._handlers = [handler for handler, _ in _watched.values()]
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def watch_again(self, lasted: float = math.inf) -> None:
        """
        Restore our handlers after the program's code has run in the main thread: a job may have set its own handlers,
        and asyncio sets some and removes them again.

        Args:
            lasted: How long that code ran, in seconds. After a short run, nothing is done as long as our handlers are
                in place: setting the wakeup file descriptor makes Python release its interpreter lock, which took an
                eighth of a no-op task's time. Without the descriptor, the handlers still receive signals.
        """
        if (
            (
                lasted < _SHORT_SECONDS
                and _getsignal(_TERM) is _watched[_TERM][0]
                and _getsignal(_INT) is _watched[_INT][0]
            )
            # Two lists: a loop over the handlers took three times as long.
            and (lasted < _SHORTEST_LOOP_SECONDS or [*map(_getsignal, self._numbers)] == self._handlers)
        ):
            return
        write_fd = self._write_fd if self._has_pipe() else -1
        has_run_asyncio = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False) != self._write_fd
        for number, (handler, _) in _watched.items():
            if self._is_beside_jobs or (has_run_asyncio and signal.getsignal(number) in _LEFT_BY_ASYNCIO):
                signal.signal(number, handler)
        if has_run_asyncio:
            # asyncio has read these numbers.
            self._sent_to_job.clear()

    def send_to_job(self, number: int) -> None:
        """
        Send a signal to the main thread that is meant for the job there and not for this inbox. Call it from another
        thread.
        """
        if number in self._read_by_number and has_handler_of_program(number):
            # Only in this case will this inbox receive the signal as well.
            self._sent_to_job.append(number)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)


def is_watched(number: int) -> bool:
    """Returns True if our handler is in place for this signal."""
    return number in _watched and signal.getsignal(number) is _watched[number][0]


def has_handler_of_program(number: int) -> bool:
    """Returns True if the program or a job has set its own handler for this signal."""
    return callable(signal.getsignal(number)) and not is_watched(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing. A signal interrupts a system call only if it has a Python handler."""


def _hold_back() -> None:
    """Block signals before a fork: Python would lose one that reached the child before it has handlers of its own."""
    if _watched:
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _watched)


def _let_through() -> None:
    """Unblock the signals after a fork."""
    mask = getattr(_held, "mask", None)
    if mask is not None:
        _held.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _unwatch_in_child() -> None:
    """
    Restore the program's previous handlers in a forked process, because its inbox is a copy that nobody reads.

    Otherwise a child of `--processes` would ignore TERM until its program is imported, and `multiprocessing` in a job
    could not terminate the processes that it has started.
    """
    for number, (handler, before) in _watched.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.SIG_DFL if before is None else before)
    if _watched:
        signal.set_wakeup_fd(-1)
        _watched.clear()
    _let_through()


os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_unwatch_in_child)
