"""Ruby Sidekiq's own parsing of flags, files and ERB, one question per line."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.missing_tools import skip_or_fail

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
_PROGRAM = Path(__file__).with_name("ruby_options.rb")


class RubyError(Exception):
    """Ruby raised an error; the message is Ruby's."""


class RubyCommandLine:
    """Runs `ruby_options.rb`; the head of that file lists the questions."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["ruby", "-W0", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "LANG": "C.UTF-8"},
        )
        greeting = self._process.stdout.readline() if self._process.stdout else ""
        if not greeting:
            _, complaint = self._process.communicate()
            raise FileNotFoundError(complaint.strip().splitlines()[0] if complaint else "ruby said nothing")

    def __enter__(self) -> "RubyCommandLine":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def options(self, flags: Sequence[str], *, env: Mapping[str, str], directory: Path) -> dict[str, Any]:
        """The options that `sidekiq *flags*` would run with when it is started in *directory*."""
        return self._ask(flags=list(flags), env=dict(env), directory=str(directory))

    def render(self, text: str, *, env: Mapping[str, str]) -> str:
        """*text* as rendered by Ruby's ERB."""
        return str(self._ask(erb=text, env=dict(env))["text"])

    def _ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RubyError(answer["error"])
        return answer


def start_or_skip() -> RubyCommandLine:
    """Start the Ruby process, or skip the test and say what to install if Ruby or Sidekiq is missing."""
    try:
        return RubyCommandLine()
    except OSError as error:
        skip_or_fail(f"no Ruby with Sidekiq ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
