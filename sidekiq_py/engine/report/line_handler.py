"""
A `logging` handler for a worker's log lines that stays fast when many threads log.

A thread appends its line to a queue. If no thread is writing, it then writes everything in the queue; otherwise it goes
on with its job, and the writing thread takes the line along. So a single line is written at once, before the caller
continues, and lines of many threads share a system call. That matters in CPython, where a thread that writes releases
the interpreter lock and has to wait to get it back.
"""

import io
import logging
import os
import select
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, TextIO

from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.logs import LineFormatter

# A pipe takes this much in one piece, so lines of several processes that share it are not torn apart.
_CHUNK_BYTES = 4096
# For this many rounds a writer takes other threads' lines along; after that, the threads wait for their turn.
_ROUNDS = 4
# The queue gets longer than this only if the reader of the log has stopped; then threads wait.
_CROWD = 1000
_PAUSE_SECONDS = 0.002

_WRITER = "writer"


class LineHandler(logging.Handler):
    """
    Writes lines to a file descriptor.

    Args:
        formatter: Formats the lines.
        stream: Standard output by default. A stream without a descriptor (`io.StringIO`) is written to directly.
    """

    def __init__(self, formatter: LineFormatter, stream: TextIO | None = None) -> None:
        super().__init__()
        self.line_formatter = formatter
        self.setFormatter(formatter)
        self._stream = stream or sys.stdout
        self._has_descriptor = _descriptor_of(self._stream) is not None
        self._pending: deque[str] = deque()
        # The thread that writes now. This is a dict and not a lock: taking a turn is one step whose outcome can be read
        # afterwards, so an exception raised in this thread from outside (a job's time limit) never leaves a turn taken
        # forever.
        self._turn: dict[str, int] = {}
        self._is_crowded = False
        _start_afresh_after_fork(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """
        Filter and write *record*.

        This does not take the lock that other handlers take here. `write_line` needs none, and until Python 3.13 a time
        limit raised in a job while it takes the lock would leave it locked forever.
        """
        # From Python 3.12 on, a filter may replace the record.
        passed: Any = self.filter(record)
        if not passed:
            return False
        self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Format and write *record*. An error is reported as the standard library's handlers do, and not raised."""
        try:
            self.write_line(self.format(record))
        except SoftTimeLimitError:
            # It was raised in the job while the job was logging, and the job must see it.
            raise
        except Exception:  # noqa: BLE001
            self.handleError(record)

    def write_line(self, line: str) -> None:
        """Write *line*, or leave it to the thread that is writing."""
        pending, turn, me = self._pending, self._turn, threading.get_ident()
        pending.append(line)
        try:
            while pending:
                if turn.setdefault(_WRITER, me) == me:
                    self._drain()
                    turn.pop(_WRITER, None)
                elif self._is_crowded or len(pending) > _CROWD:
                    time.sleep(_PAUSE_SECONDS)
                else:
                    return
        finally:
            if turn.get(_WRITER) == me:
                turn.pop(_WRITER, None)

    def flush(self) -> None:
        """Wait until everything logged so far has been written."""
        turn, me = self._turn, threading.get_ident()
        while turn.setdefault(_WRITER, me) != me:
            time.sleep(_PAUSE_SECONDS)
        try:
            self._write_pending()
        finally:
            turn.pop(_WRITER, None)

    def start_afresh(self) -> None:
        """Reset the state in a forked child: the parent writes its queued lines, and its writing thread is not here."""
        self._pending.clear()
        self._turn = {}
        self._is_crowded = False

    def _drain(self) -> None:
        for _ in range(_ROUNDS):
            self._write_pending()
            if not self._pending:
                return
        # This thread has its own job to do. From here on, threads that log wait for their turn instead of leaving their
        # lines to this one. The lines left so far are written below.
        self._is_crowded = True
        try:
            self._write_pending()
        finally:
            self._is_crowded = False

    def _write_pending(self) -> None:
        pending = self._pending
        chunk = bytearray()
        try:
            for _ in range(len(pending)):
                line = pending.popleft().encode("utf-8", "backslashreplace")
                if chunk and len(chunk) + len(line) >= _CHUNK_BYTES:
                    full, chunk = chunk, bytearray()
                    self._write(full)
                chunk += line
                chunk += b"\n"
        except IndexError:
            # A signal handler has logged, and has written the queued lines.
            pass
        finally:
            # Write even if this thread's job is interrupted right now: most of these lines belong to other jobs.
            if chunk:
                self._write(chunk)

    def _write(self, data: bytearray) -> None:
        if not self._has_descriptor:
            self._stream.write(data.decode())
            self._stream.flush()
            return
        view = memoryview(data)
        while view:
            # Read again each time: the descriptor of a closed stream may by now belong to a connection to Redis.
            descriptor = _descriptor_of(self._stream)
            if descriptor is None:
                return
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:
                # The reader is gone or the disk is full. That must not fail a job.
                return


def _descriptor_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        # A closed stream raises ValueError.
        return None


def _start_afresh_after_fork(handler: LineHandler) -> None:
    reference = weakref.ref(handler)

    def in_child() -> None:
        survivor = reference()
        if survivor is not None:
            survivor.start_afresh()

    os.register_at_fork(after_in_child=in_child)
