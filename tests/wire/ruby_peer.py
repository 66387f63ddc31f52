"""A Ruby process with Sidekiq in it, asked line by line."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.missing_tools import skip_or_fail
from tests.support.ruby_process import RUBY_SWITCH, RubyProcess

JID = "0123456789abcdef01234567"
_PIPE_BYTES = 8_000
_PROGRAM = Path(__file__).with_name("ruby_peer.rb")


class RubyError(Exception):
    """Ruby raised; the text is the name of its error."""


class RubyPeer(RubyProcess):
    """Runs `ruby_peer.rb`; its head says what may be asked."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM, TZ="UTC")
        self.sidekiq_version, self.json_version = self.greeting.split()

    def ask(self, word: str, content: bytes) -> bytes:
        """One question, its answer."""
        [answer] = self.ask_all(word, [content])
        if isinstance(answer, RubyError):
            raise answer
        return answer

    def ask_all(self, word: str, contents: Sequence[bytes]) -> list[bytes | RubyError]:
        """Many questions in few round trips; a raised error is an answer too."""
        answers: list[bytes | RubyError] = []
        waiting: list[bytes] = []
        for content in contents:
            waiting.append(content)
            if sum(map(len, waiting)) > _PIPE_BYTES:  # more, and both ends could wait on a full pipe
                answers += self._ask_some(word, waiting)
                waiting = []
        return answers + self._ask_some(word, waiting)

    def json(self, text: bytes) -> bytes:
        """Parsed and generated again."""
        return self.ask("json", text)

    def floats(self, values: Sequence[float]) -> list[str]:
        """The JSON text of each."""
        return self.ask("floats", struct.pack(f">{len(values)}d", *values)).decode().split("\n")

    def push(self, ruby: str, *, now: float, **details: Any) -> list[list[Any]]:
        """The commands that *ruby* sends, each as its name and arguments; *details* are in its `question`."""
        question = json.dumps({"ruby": ruby, "now": now, **details}).encode()
        return [json.loads(line) for line in self.ask("push", question).decode().split("\n") if line]

    def fail(self, payload: bytes, **details: Any) -> bytes:
        """The member of `retry` that a failure leaves."""
        return self.ask("fail", json.dumps({"payload": payload.decode(), **details}).encode())

    def _ask_some(self, word: str, contents: Sequence[bytes]) -> list[bytes | RubyError]:
        lines = self.answers([f"{word} {content.hex()}" for content in contents])
        return [RubyError(line[1:]) if line.startswith("!") else bytes.fromhex(line) for line in lines]


def start_or_skip() -> RubyPeer:
    """A running peer; where Ruby or Sidekiq is missing, what to install."""
    try:
        return RubyPeer()
    except OSError as error:
        skip_or_fail(
            f"no Ruby with Sidekiq ({error}); on Debian: apt-get install ruby-sidekiq",
            switch=RUBY_SWITCH,
        )
