"""A Ruby process with Active Job in it, asked line by line."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.missing_tools import skip_or_fail

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
_PROGRAM = Path(__file__).with_name("ruby_peer.rb")


class RubyPeer:
    """Runs `ruby_peer.rb`; its head says what may be asked."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["ruby", "-W0", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "LANG": "C.UTF-8", "TZ": "UTC"},
        )
        greeting = self._process.stdout.readline() if self._process.stdout else ""
        if not greeting:
            _, complaint = self._process.communicate()
            raise FileNotFoundError(complaint.strip().splitlines()[0] if complaint else "ruby said nothing")
        self.rails_version: str = json.loads(greeting)["ready"]

    def __enter__(self) -> "RubyPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, question: str, **details: Any) -> dict[str, Any]:
        """One question, its answer; an error in Ruby is raised here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": question, **details}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(f"Ruby: {answer['error']}")
        return answer


def start_or_skip() -> RubyPeer:
    """A running peer; where Ruby, Sidekiq or Active Job is missing, what to install."""
    try:
        return RubyPeer()
    except OSError as error:
        skip_or_fail(
            f"no Ruby with Sidekiq and Active Job ({error}); on Debian: apt-get install ruby-sidekiq ruby-activejob",
            switch=RUBY_SWITCH,
        )
