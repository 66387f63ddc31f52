"""
What tells a worker to quiet, stop or show itself: signals of the system, and those that a Web UI left in Redis.

TSTP and USR1 quiet; TERM and INT stop, a second one without waiting for busy jobs; TTIN dumps the threads; USR2
reopens log files. Source: Sidekiq 4.2 to 8.1.7, cli.rb.
"""

import os
import select
import signal
from collections import deque
from collections.abc import Sequence
from types import FrameType

NAMES = ("TERM", "INT", "TSTP", "USR1", "USR2", "TTIN")


class SignalInbox:
    """Names of signals, put in from anywhere, read by the main thread."""

    def __init__(self) -> None:
        self._names: deque[str] = deque()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)

    def put(self, name: str) -> None:
        """Add a name. Safe in a signal handler and in any thread."""
        self._names.append(name.upper().removeprefix("SIG"))
        try:
            os.write(self._write_fd, b".")
        except BlockingIOError:
            pass

    def next(self, seconds: float | None = None) -> str | None:
        """The next name; waits for one, at most *seconds*."""
        while not self._names:
            if not select.select([self._read_fd], [], [], seconds)[0]:
                return None
            try:
                os.read(self._read_fd, 1024)
            except BlockingIOError:
                pass
            if seconds is not None and not self._names:
                return None
        return self._names.popleft()

    @property
    def fd(self) -> int:
        """Readable when a name has come; for `select`."""
        return self._read_fd

    def watch(self, more: Sequence[str] = ()) -> None:
        """Take in the signals of the system, and *more*. Only in the main thread."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.put(signal.Signals(number).name)

        for name in (*NAMES, *more):
            signal.signal(getattr(signal, f"SIG{name}"), handle)
        # A process that was frozen takes a signal in any of its threads, and Python's handlers run in the main thread
        # alone: the byte wakes it.
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
