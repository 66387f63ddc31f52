"""
Watch every command that a Redis server receives, from all clients, with MONITOR.

Only use it on your own server: it slows a busy one down.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.link import Link

_LINE = re.compile(rb"(\d+\.\d+) \[\d+ .*?\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"(?: |$)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_HEX_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2})")
_NAMED_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class SeenCommand(NamedTuple):
    """
    One command as the server received it.

    Args:
        at_seconds: When, by the server's clock, in seconds since the epoch.
        words: The command's name and its arguments.
    """

    at_seconds: float
    words: tuple[bytes, ...]


def watch(link: Link) -> Iterator[SeenCommand]:
    """
    Yield every command from now on, until the connection ends.

    Args:
        link: A separate link with a long timeout; it cannot be used for anything else from now on.

    Raises:
        RedisError: Redis refuses MONITOR or cannot be reached.
    """
    link.command("MONITOR")
    return _commands(link)


def parse(line: bytes) -> SeenCommand | None:
    """Parse a line of MONITOR. Returns None if it is not one."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    at, words = match.groups()
    return SeenCommand(float(at), tuple(_words(words)))


def _words(line: bytes) -> list[bytes]:
    if _WORD.sub(b"", line) == b"":
        return [_ESCAPE.sub(_unescaped, word) for word in _WORD.findall(line)]
    # Valkey 8.1 does not escape quotes and backslashes. JSON has no line ends and no `\x`, so a payload is parsed
    # correctly unless it contains `" "`.
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
