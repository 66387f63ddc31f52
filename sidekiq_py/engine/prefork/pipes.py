"""
The messages between a parent and its children, over two pipes for each child.

Up, from a child to the parent:

- `OWNER <name>`: the child takes jobs under this owner from now on.
- `READY`: the child takes jobs.
- `BEGIN <seconds> <owner> <field>` and `END`: a job with a hard limit starts and ends.
- `TERMINATE signal:<number> <owner> <field>`: the running job must be ended; followed by `END` if it ends by itself.
- `SETTLED <yes|no|later> <owner> <field>`: the answer to `KILLED`. `no`: the job is not in flight; `later`: Redis is
  unreachable.
- `RENEW`: replace this child, which takes no more jobs.
- `LOAD <running> [<waiting>]`: the answer to `LOAD`.
- `HEARD <owner>`: the answer to `DEAD`.
- `LEAVING <signal>`: the child was asked to stop and does so. A child that ends without this message has crashed,
  whatever its exit code.

Down, from the parent to a child:

- `DEAD <owner>`: recover the jobs of this owner.
- `KILLED <seconds> <owner> <field>`: this job ran past its hard limit or was terminated; settle it as failed.
- `SIGNAL <number>`: your job was settled that way; deliver this signal to it.
- `LOAD [waiting]`: report how many jobs run, and how many wait.
- The end of the down pipe means that the parent is gone.

Between a sidecar (`sidecar.py`) and the others; each text is one line:

- From the sidecar: `TELL <who> <text>` and `ASK <number> <who> <text>`, where who is `parent`, `children` or `all`.
- To a child: `TELL <text>`, `ASK <number> <text>`. From a child: `ANSWER <number> <text>`, `SAY <text>`.
- To the sidecar: `ASKED <number> <pid>…` (the processes that were asked), `ANSWER <number> <pid> <text>`,
  `SAID <pid> <text>`, `GONE <pid>` (a child has ended).

A reader ignores messages that it does not understand: a job may write to any file that its process has open.
"""

import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from sidekiq_py.logs import log

_CHUNK = 65536
# poll() takes at most 24 days at a time.
_LONGEST_WAIT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message: a word and its details."""

    word: str
    details: tuple[str, ...] = ()


class LinePipe:
    """
    One end of a pipe, which reads or writes whole messages.

    Attributes:
        fd: The file descriptor.
        has_ended: True once the other end is closed and everything has been read.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.has_ended = False
        self._buffer = b""
        self._lock = threading.Lock()

    def write(self, word: str, *details: str) -> bool:
        """Send a message. Returns False if the other end is closed."""
        line = _line_of(word, details)
        try:
            with self._lock:
                # A signal may interrupt the write of a line that is longer than the pipe, which is then sent in parts.
                while line:
                    line = line[os.write(self.fd, line) :]
            return True
        except OSError:
            return False

    def read(self) -> Iterator[Message] | None:
        """Return the messages that have arrived, or None at the end of the pipe. Blocks if there are none."""
        try:
            data = os.read(self.fd, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self.has_ended = True
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        # The name of a queue may be any bytes; surrogateescape preserves them.
        words = [line.decode(errors="surrogateescape").split(" ") for line in lines if line]
        return iter([Message(first, tuple(rest)) for first, *rest in words])

    def close(self) -> None:
        """Close this end."""
        with suppress(OSError):
            os.close(self.fd)


class Outbox:
    """
    The parent's end of a pipe to a child. Writing never blocks: what the child does not take yet is buffered.

    Attributes:
        fd: The file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._waiting = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """The number of buffered bytes."""
        return len(self._waiting)

    def write(self, word: str, *details: str) -> bool:
        """Send or buffer a message. Returns False if the other end is closed."""
        self._waiting += _line_of(word, details)
        return self.flush()

    def flush(self) -> bool:
        """Send as much as the other end takes. Returns False if the other end is closed."""
        try:
            while self._waiting:
                written = os.write(self.fd, self._waiting[:_CHUNK])
                del self._waiting[:written]
        except BlockingIOError:
            return True
        except OSError:
            self._waiting.clear()
            return False
        return True

    def close(self) -> None:
        """Close this end."""
        with suppress(OSError):
            os.close(self.fd)


class Parent:
    """A child's connection to its parent. `listen` starts a thread that reads the parent's messages."""

    def __init__(self, up: LinePipe, down: LinePipe) -> None:
        self._up = up
        self._down = down

    def say(self, word: str, *details: str) -> None:
        """Send a message to the parent. If the parent is gone, `listen` notices it at the end of the other pipe."""
        self._up.write(word, *details)

    def listen(self, on_message: Callable[[Message], None], on_end: Callable[[], None]) -> None:
        """Call *on_message* for each message, and *on_end* when the parent is gone."""

        def run() -> None:
            while True:
                messages = self._down.read()
                if messages is None:
                    on_end()
                    return
                for message in messages:
                    try:
                        on_message(message)
                    except Exception:  # noqa: BLE001 — a sidecar's request may run code of the program
                        # This thread must go on: it also notices the parent's end.
                        log.exception("a message of the parent process could not be handled: %.200r", message)

        threading.Thread(target=run, name="sidekiq.parent", daemon=True).start()


def _line_of(word: str, details: tuple[str, ...]) -> bytes:
    return " ".join((word, *details)).encode(errors="surrogateescape") + b"\n"


def readable(fds: list[int], seconds: float | None, *, writers: Iterable[int] = ()) -> list[int]:
    """
    Wait until one of *fds* can be read or one of *writers* can be written to, and return those that can.

    Args:
        seconds: The longest wait, a day at most; None waits without a limit.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    for fd in writers:
        poll.register(fd, select.POLLOUT)
    return [
        fd for fd, _ in poll.poll(None if seconds is None else min(max(0.0, seconds), _LONGEST_WAIT_SECONDS) * 1000)
    ]
