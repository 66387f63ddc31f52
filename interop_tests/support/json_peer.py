"""Queries the json gem of a release in batches, with a notation for values that does not use JSON."""

import os
import subprocess
from collections.abc import Sequence
from struct import pack
from typing import Any

from interop_tests.support.ruby import UTF8, RubyRelease
from tests.support.child_process import tied_to_this_process

REFUSED = b"!"


def tokens_of(value: Any) -> str:
    """A value in the notation of `ruby_fixtures/json_peer.rb`."""
    tokens: list[str] = []
    _write(value, tokens.append)
    return " ".join(tokens)


def _write(value: Any, put: Any) -> None:
    kind = type(value)
    if kind is str:
        put("s" + value.encode().hex())
    elif kind is float:
        put("d" + pack(">d", value).hex())
    elif kind is int:
        put(f"i{value:x}")
    elif kind is list:
        put(f"[{len(value)}")
        for item in value:
            _write(item, put)
    elif kind is dict:
        put(f"{{{len(value)}")
        for key, item in value.items():
            _write(key, put)
            _write(item, put)
    else:
        put({None: "n", True: "t", False: "f"}[value])


class JsonPeer:
    """
    Runs `json_peer.rb` in a release's Ruby.

    A batch is sent completely and its answers are read completely, so that neither end waits on a full pipe. In
    between, the caller can prepare the next batch while Ruby is busy.

    Attributes:
        gem: The version of the json gem, such as "2.9.1".
    """

    def __init__(self, release: RubyRelease) -> None:
        self._process = subprocess.Popen(
            tied_to_this_process([*release.ruby, "-W0", str(release.fixtures / "json_peer.rb")]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **UTF8, **release.environment},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._waiting = 0
        self.gem = self._answers.readline().decode().strip()

    def __enter__(self) -> "JsonPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The gem's version for comparisons, such as (2, 9, 1)."""
        return tuple(map(int, self.gem.split(".")[:3]))

    def send_values(self, spelled: Sequence[str]) -> None:
        """Ask for the JSON text of values, each given as by `tokens_of`."""
        self._send("generate", spelled)

    def send_texts(self, texts: Sequence[bytes]) -> None:
        """Ask for the value of each text, and how it is written again."""
        self._send("parse", [text.hex() for text in texts])

    def receive(self) -> list[bytes]:
        """The answers to the last batch; an answer that begins with `REFUSED` is an error."""
        answers = [self._answers.readline() for _ in range(self._waiting)]
        if not answers[-1].endswith(b"\n"):
            raise AssertionError(f"json {self.gem} ended before its last answer")
        return [answer[:-1] for answer in answers]

    def _send(self, word: str, lines: Sequence[str]) -> None:
        self._waiting = len(lines)
        self._questions.write("\n".join((f"{word} {len(lines)}", *lines, "")).encode())
        self._questions.flush()
