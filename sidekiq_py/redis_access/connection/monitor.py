"""
What a Redis server is told, command by command, by whomever: MONITOR.

For looking on, on a server of one's own: a busy server is slowed down by it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.link import Link

_LINE = re.compile(rb"(\d+\.\d+) \[\d+ (.*?)\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"(?: |$)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_HEX_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2})")
_NAMED_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class SeenCommand(NamedTuple):
    """
    One command, as the server took it.

    Args:
        at_seconds: Of the server's clock, since the epoch.
        sender: Address and port of the client, or `lua` from within a script.
        words: The command's name and its arguments.
    """

    at_seconds: float
    sender: str
    words: tuple[bytes, ...]


def watch(link: Link) -> Iterator[SeenCommand]:
    """
    Every command from now on; ends when the connection does.

    Args:
        link: Of its own, with a long timeout: it serves nothing else from here on.

    Raises:
        RedisError: Redis refuses MONITOR, or is out of reach.
    """
    link.command("MONITOR")
    return _commands(link)


def parse(line: bytes) -> SeenCommand | None:
    """One line of MONITOR; None if it is none."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    at, sender, words = match.groups()
    return SeenCommand(float(at), sender.decode("utf-8", "replace"), tuple(_words(words)))


def _words(line: bytes) -> list[bytes]:
    if _WORD.sub(b"", line) == b"":
        return [_ESCAPE.sub(_unescaped, word) for word in _WORD.findall(line)]
    # Valkey 8.1 leaves quotes and backslashes as they are. JSON has no line ends and no `\x` of its own, so a payload
    # is read rightly, unless a quoted blank is in it.
    return [_HEX_ESCAPE.sub(_unescaped, word) for word in line[1:-1].split(b'" "')]


def _commands(link: Link) -> Iterator[SeenCommand]:
    try:
        while True:
            command = parse(link.receive())
            if command is not None:
                yield command
    except RedisError:
        return


def _unescaped(match: re.Match[bytes]) -> bytes:
    # Source: Redis 7.0, sds.c, `sdscatrepr`.
    code: bytes = match.group(1)
    if len(code) == 3:
        return bytes.fromhex(code[1:].decode())
    return _NAMED_ESCAPES.get(code, code)
