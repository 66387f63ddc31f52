"""A Ruby process with Active Job in it, asked line by line."""

import json
from pathlib import Path
from typing import Any

from tests.support.missing_tools import skip_or_fail
from tests.support.ruby_process import RUBY_SWITCH, RubyProcess

_PROGRAM = Path(__file__).with_name("ruby_peer.rb")


class RubyPeer(RubyProcess):
    """Runs `ruby_peer.rb`; its head says what may be asked."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM, TZ="UTC")
        self.rails_version: str = json.loads(self.greeting)["ready"]

    def ask(self, question: str, **details: Any) -> dict[str, Any]:
        """One question, its answer; an error in Ruby is raised here."""
        [line] = self.answers([json.dumps({"ask": question, **details})])
        answer: dict[str, Any] = json.loads(line)
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
