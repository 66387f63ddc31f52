"""A pipe by which one thread wakes another one, or an event loop."""

import os
import select
import threading

__all__ = ("Bell",)


class Bell:
    """
    Readable while it has been rung more often than it was heard. Closing twice is fine, and so is ringing after that.

    Attributes:
        fd: For `select` and event loops.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        # A descriptor that is closed may be somebody else's the next instant.
        self._lock = threading.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Bell {self.fd}{' closed' if self._is_closed else ''}>"

    def ring(self) -> None:
        """Make it readable. Rung thousands of times and not heard, it rings no more, but stays readable."""
        with self._lock:
            if self._is_closed:
                return
            try:
                os.write(self._write_fd, b".")
            except BlockingIOError:
                pass

    def hear(self, times: int) -> None:
        """Take back up to so many rings."""
        with self._lock:
            if self._is_closed:
                return
            try:
                os.read(self.fd, times)
            except BlockingIOError:
                pass

    def wait(self, seconds: float | None) -> None:
        """Wait until it is rung, at most so long."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    def close(self) -> None:
        """Let go of the descriptors. Nobody may wait for it."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.fd)
                os.close(self._write_fd)
