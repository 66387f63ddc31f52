"""Records every command that a server receives, with MONITOR."""

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

_LINE = re.compile(rb"\+(\d+\.\d+) \[\d+ (\S+)\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class Seen(NamedTuple):
    """
    A command.

    Attributes:
        at: When the server ran it, in seconds since the epoch.
        client: The address it came from; `lua` if a script sent it.
    """

    at: float
    client: str
    words: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """The command's name, as in INFO."""
        return self.words[0].decode().lower()


@dataclass(slots=True)
class Recording:
    """The commands seen; complete once the recording has ended."""

    seen: list[Seen]


@contextmanager
def recorded(host: str, port: int) -> Iterator[Recording]:
    """Record a server's commands within the block."""
    recording = Recording([])
    received: list[bytes] = []
    with socket.create_connection((host, port)) as sock:
        sock.sendall(b"MONITOR\r\n")
        if sock.recv(5) != b"+OK\r\n":
            raise RuntimeError("the server refuses MONITOR")

        def read() -> None:
            while part := sock.recv(1 << 20):
                received.append(part)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield recording
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            reader.join()
    recording.seen = [parsed(line) for line in b"".join(received).split(b"\r\n")[:-1]]


def parsed(line: bytes) -> Seen:
    """Parse a line of MONITOR output."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r} is no line of MONITOR")
    words = tuple(_ESCAPE.sub(_unescaped, word) for word in _WORD.findall(match[3]))
    return Seen(float(match[1]), match[2].decode(), words)


def _unescaped(match: "re.Match[bytes]") -> bytes:
    text = match[1]
    if len(text) == 3:
        return bytes.fromhex(text[1:].decode())
    return _PLAIN.get(text, text)


def sent_shares(seen: list[Seen]) -> Mapping[str, float]:
    """For each command, the share of its calls that came from a client and not from a script."""
    calls = Counter(one.name for one in seen)
    sent = Counter(one.name for one in seen if one.client != "lua")
    return {name: sent[name] / count for name, count in calls.items()}
