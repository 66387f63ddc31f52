"""
What a parent and its children say to each other, over two pipes each.

- Up: `OWNER <name>` (the child takes jobs under this name from now on), `READY`, `BEGIN <seconds> <owner> <field>` and
`END` (a job with a hard limit starts and ends), `TERMINATE signal:<number> <owner> <field>` (the job that runs is to be
ended by force; `END` if it ends by itself), `SETTLED <yes|no|later> <owner> <field>` (the answer to `KILLED`; `no`: it
had ended, `later`: Redis is away), `RENEW` (replace me: I take no more jobs), `LOAD <running> [<waiting>]` (the
answer to `LOAD`), `HEARD <owner>` (the answer to `DEAD`), `LEAVING <signal>` (I was told to stop, and do: an end
without this word is a crash, whatever its exit code).
- Down: `DEAD <owner>` (bring its jobs back), `KILLED <seconds> <owner> <field>` (its job ran past its hard limit,
or was terminated: settle it as failed), `SIGNAL <number>` (your job was settled so: have this signal reach it), `LOAD
[waiting]` (how many jobs run, and how many wait). The end of the down pipe says that the parent is gone.
- Between a sidecar (`sidecar.py`) and the rest, each text being one line. From the sidecar: `TELL <who> <text>`
and `ASK <number> <who> <text>`, where who is `parent`, `children` or `all`. To a child: `TELL <text>`, `ASK <number>
<text>`. From a child: `ANSWER <number> <text>`, and `SAY <text>`. To the sidecar: `ASKED <number> <pid>…` (who was
asked), `ANSWER <number> <pid> <text>`, `SAID <pid> <text>`, `GONE <pid>` (a child has ended).

Whoever reads passes over what it does not understand: a job may write to any file that its process has open.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_log = logging.getLogger("sidekiq")

_CHUNK = 65536
# The system waits for no longer than 24 days at a time.
_LONGEST_WAIT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Message:
    """A word and what goes with it."""

    word: str
    details: tuple[str, ...] = ()


class LinePipe:
    """
    Reads whole messages from one end of a pipe, or writes them to the other.

    Attributes:
        has_ended: Nothing more will come.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.has_ended = False
        self._buffer = b""
        self._lock = threading.Lock()

    def write(self, word: str, *details: str) -> bool:
        """Send a message; False if nobody reads any more."""
        line = _line_of(word, details)
        try:
            with self._lock:
                # A line that is longer than the pipe goes in parts where a signal comes in between.
                while line:
                    line = line[os.write(self.fd, line) :]
            return True
        except OSError:
            return False

    def read(self) -> Iterator[Message] | None:
        """What has come; None at the end of the pipe. Waits if nothing has."""
        try:
            data = os.read(self.fd, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self.has_ended = True
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        # The name of a queue may be any bytes, and comes back as it was.
        words = [line.decode(errors="surrogateescape").split(" ") for line in lines if line]
        return iter([Message(first, tuple(rest)) for first, *rest in words])

    def close(self) -> None:
        """Close this end."""
        try:
            os.close(self.fd)
        except OSError:
            pass


class Outbox:
    """
    The parent's end of a pipe to a child. Writing never waits: what the child does not take yet is kept.

    Attributes:
        waiting_bytes: How much is kept.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._waiting = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """How much has not been taken yet."""
        return len(self._waiting)

    def write(self, word: str, *details: str) -> bool:
        """Send a message; False if nobody reads any more."""
        self._waiting += _line_of(word, details)
        return self.flush()

    def flush(self) -> bool:
        """Send what the other end takes; False if nobody reads any more."""
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
        try:
            os.close(self.fd)
        except OSError:
            pass


class Parent:
    """The parent as a child sees it. Starts a thread that listens."""

    def __init__(self, up: LinePipe, down: LinePipe) -> None:
        self._up = up
        self._down = down

    def say(self, word: str, *details: str) -> None:
        """Tell the parent; one that is gone is heard of by the end of the other pipe."""
        self._up.write(word, *details)

    def listen(self, hear: Callable[[Message], None], on_end: Callable[[], None]) -> None:
        """Call *hear* for each message, and *on_end* when the parent is gone."""

        def run() -> None:
            while True:
                messages = self._down.read()
                if messages is None:
                    on_end()
                    return
                for message in messages:
                    try:
                        hear(message)
                    except Exception:  # noqa: BLE001 — what a sidecar asks for may be code of the program
                        # This thread also hears of the parent's end.
                        _log.exception("a message of the parent process could not be handled: %.200r", message)

        threading.Thread(target=run, name="sidekiq.parent", daemon=True).start()


def _line_of(word: str, details: tuple[str, ...]) -> bytes:
    return " ".join((word, *details)).encode(errors="surrogateescape") + b"\n"


def readable(fds: list[int], seconds: float | None, *, writers: Iterable[int] = ()) -> list[int]:
    """Those of *fds* on which something can be read within *seconds* or a day, and of *writers* that take more."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    for fd in writers:
        poll.register(fd, select.POLLOUT)
    return [
        fd for fd, _ in poll.poll(None if seconds is None else min(max(0.0, seconds), _LONGEST_WAIT_SECONDS) * 1000)
    ]
