"""
Where a worker's log lines go: a handler of the standard library that stays quick when many threads log.

A thread hangs its line on a queue and, if nobody writes, writes everything that hangs there; if somebody does, it goes
on with its job and the writer takes the line along. So a lone line is written at once, before the caller goes on, and
lines of many threads share a system call. In CPython that is worth a lot: whoever writes lets go of the interpreter
lock and has to queue for it again.
"""

import io
import logging
import os
import select
import sys
import threading
import weakref
from collections import deque
from typing import TextIO

from sidekiq_py.logs import LineFormatter

# What a pipe takes in one piece: lines of several processes that share it are not torn apart.
_CHUNK_BYTES = 4096
# So many rounds a writer takes other threads' lines along before it lets them wait for their turn.
_ROUNDS = 4
# More lines than this hang on the queue only if whoever reads the log stands still; then threads wait.
_CROWD = 1000


class LineHandler(logging.Handler):
    """
    Writes lines to a file descriptor.

    Args:
        formatter: Makes the lines.
        stream: Standard output by default. One without a descriptor (`io.StringIO`) is written to as it is.
    """

    def __init__(self, formatter: LineFormatter, stream: TextIO | None = None) -> None:
        super().__init__()
        self.line_formatter = formatter
        self.setFormatter(formatter)
        self._stream = stream or sys.stdout
        self._descriptor = _descriptor_of(self._stream)
        self._pending: deque[str] = deque()
        # Reentrant, as a signal handler may log on top of a line that its thread is writing.
        self._writing = threading.RLock()
        self._is_crowded = False
        _start_afresh_after_fork(self)

    def __repr__(self) -> str:
        return f"<LineHandler {type(self.line_formatter).__name__} fd={self._descriptor}>"

    @property
    def is_terminal(self) -> bool:
        """A person is reading along."""
        return self._stream.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Format and write *record*; a failure is reported as the standard library's handlers do, and not raised."""
        try:
            self.write_line(self.format(record))
        except Exception:  # noqa: BLE001
            self.handleError(record)

    def write_line(self, line: str) -> None:
        """Write *line*, or leave it to the thread that is writing now."""
        pending = self._pending
        pending.append(line)
        while pending:
            must_wait = self._is_crowded or len(pending) > _CROWD
            if not self._writing.acquire(blocking=must_wait):
                return
            try:
                self._drain()
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Wait until everything logged so far has been written."""
        with self._writing:
            self._write_pending()

    def start_afresh(self) -> None:
        """In a forked child: the parent writes what hangs on its queue, and its writing thread is not here."""
        self._pending.clear()
        self._writing = threading.RLock()
        self._is_crowded = False

    def _drain(self) -> None:
        for _ in range(_ROUNDS):
            self._write_pending()
            if not self._pending:
                return
        # This thread has a job of its own. Threads that log from here on wait for the lock instead of leaving their
        # lines to us; what was left to us before is written below.
        self._is_crowded = True
        try:
            self._write_pending()
        finally:
            self._is_crowded = False

    def _write_pending(self) -> None:
        pending = self._pending
        chunk = bytearray()
        for _ in range(len(pending)):
            try:
                line = pending.popleft().encode("utf-8", "backslashreplace")
            except IndexError:
                break
            if chunk and len(chunk) + len(line) >= _CHUNK_BYTES:
                self._write(chunk)
                chunk = bytearray()
            chunk += line
            chunk += b"\n"
        if chunk:
            self._write(chunk)

    def _write(self, data: bytearray) -> None:
        if self._descriptor is None:
            self._stream.write(data.decode())
            self._stream.flush()
            return
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                # The reader is gone or the disk is full: no reason to fail a job.
                return


def _descriptor_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation, OSError):
        return None


def _start_afresh_after_fork(handler: LineHandler) -> None:
    reference = weakref.ref(handler)

    def in_child() -> None:
        survivor = reference()
        if survivor is not None:
            survivor.start_afresh()

    os.register_at_fork(after_in_child=in_child)
