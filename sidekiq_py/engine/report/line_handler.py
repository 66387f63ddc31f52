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
import time
import weakref
from collections import deque
from typing import Any, TextIO

from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.logs import LineFormatter

# What a pipe takes in one piece: lines of several processes that share it are not torn apart.
_CHUNK_BYTES = 4096
# So many rounds a writer takes other threads' lines along before it lets them wait for their turn.
_ROUNDS = 4
# More lines than this hang on the queue only if whoever reads the log stands still; then threads wait.
_CROWD = 1000
_PAUSE_SECONDS = 0.002

_WRITER = "writer"


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
        self._has_descriptor = _descriptor_of(self._stream) is not None
        self._pending: deque[str] = deque()
        # Who writes now. A dict and not a lock: taking a turn is one step whose outcome can be read afterwards, so that
        # an exception which is raised in this thread from outside (a job's time limit) never leaves a turn taken for
        # ever.
        self._turn: dict[str, int] = {}
        self._is_crowded = False
        _start_afresh_after_fork(self)

    def __repr__(self) -> str:
        return f"<LineHandler {type(self.line_formatter).__name__} to {self._stream!r}>"

    def handle(self, record: logging.LogRecord) -> bool:
        """
        Filter and write *record*.

        Without the lock that other handlers take here: `write_line` needs none, and until Python 3.13 a time limit that
        strikes a job in the midst of taking it would leave it locked for ever.
        """
        # From Python 3.12 on a filter may put another record in its place.
        passed: Any = self.filter(record)
        if not passed:
            return False
        self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Format and write *record*; a failure is reported as the standard library's handlers do, and not raised."""
        try:
            self.write_line(self.format(record))
        except SoftTimeLimitError:
            # It struck the job while it was logging, and is the job's to see.
            raise
        except Exception:  # noqa: BLE001
            self.handleError(record)

    def write_line(self, line: str) -> None:
        """Write *line*, or leave it to the thread that is writing now."""
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
        """In a forked child: the parent writes what hangs on its queue, and its writing thread is not here."""
        self._pending.clear()
        self._turn = {}
        self._is_crowded = False

    def _drain(self) -> None:
        for _ in range(_ROUNDS):
            self._write_pending()
            if not self._pending:
                return
        # This thread has a job of its own. Threads that log from here on wait for their turn instead of leaving their
        # lines to us; what was left to us before is written below.
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
            # A signal handler has logged, and taken along what hung here.
            pass
        finally:
            # Also when the job of this thread is cut off just now: most of these lines are other jobs'.
            if chunk:
                self._write(chunk)

    def _write(self, data: bytearray) -> None:
        if not self._has_descriptor:
            self._stream.write(data.decode())
            self._stream.flush()
            return
        view = memoryview(data)
        while view:
            # Asked anew each time: the number of a stream that was closed may by now be that of a connection to Redis.
            descriptor = _descriptor_of(self._stream)
            if descriptor is None:
                return
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:
                # The reader is gone or the disk is full: no reason to fail a job.
                return


def _descriptor_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        # A ValueError says that it was closed.
        return None


def _start_afresh_after_fork(handler: LineHandler) -> None:
    reference = weakref.ref(handler)

    def in_child() -> None:
        survivor = reference()
        if survivor is not None:
            survivor.start_afresh()

    os.register_at_fork(after_in_child=in_child)
