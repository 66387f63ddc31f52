"""Ruby Sidekiq's own parsing of flags, files and ERB, one question per line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.missing_tools import skip_or_fail
from tests.support.ruby_process import RUBY_SWITCH, RubyProcess

_PROGRAM = Path(__file__).with_name("ruby_options.rb")


class RubyError(Exception):
    """Ruby raised an error; the message is Ruby's."""


class RubyCommandLine(RubyProcess):
    """Runs `ruby_options.rb`; the head of that file lists the questions."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM)

    def options(self, flags: Sequence[str], *, env: Mapping[str, str], directory: Path) -> dict[str, Any]:
        """The options that `sidekiq *flags*` would run with when it is started in *directory*."""
        return self._ask(flags=list(flags), env=dict(env), directory=str(directory))

    def render(self, text: str, *, env: Mapping[str, str]) -> str:
        """*text* as rendered by Ruby's ERB."""
        return str(self._ask(erb=text, env=dict(env))["text"])

    def _ask(self, **question: Any) -> dict[str, Any]:
        [line] = self.answers([json.dumps(question)])
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RubyError(answer["error"])
        return answer


def start_or_skip() -> RubyCommandLine:
    """Start the Ruby process, or skip the test and say what to install if Ruby or Sidekiq is missing."""
    try:
        return RubyCommandLine()
    except OSError as error:
        skip_or_fail(f"no Ruby with Sidekiq ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
