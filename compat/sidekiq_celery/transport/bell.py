"""A pipe with which one thread wakes another thread or an event loop."""

import os
import select
import threading
from contextlib import suppress


class Bell:
    """
    Its descriptor is readable while it was rung more often than heard. Closing twice is fine; ringing after that, too.

    Attributes:
        fd: The descriptor, for `select` and event loops.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        # A closed descriptor may belong to someone else the next instant, so closing needs a lock.
        self._lock = threading.Lock()
        self._is_closed = False

    def ring(self) -> None:
        """Make the descriptor readable. Once the pipe is full, further rings are lost, but it stays readable."""
        with self._lock, suppress(BlockingIOError):
            if not self._is_closed:
                os.write(self._write_fd, b".")

    def take_back(self, times: int) -> None:
        """Take back up to *times* rings."""
        with self._lock, suppress(BlockingIOError):
            if not self._is_closed:
                os.read(self.fd, times)

    def wait(self, seconds: float | None) -> None:
        """Wait until the bell is rung, but at most *seconds*."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    def close(self) -> None:
        """Close the descriptors. Nothing may be waiting for the bell."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.fd)
                os.close(self._write_fd)
