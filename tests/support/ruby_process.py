"""A Ruby program that answers questions, one a line."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.child_process import tied_to_this_process

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"


class RubyProcess:
    """
    Runs *program*, which greets with a line once it is ready, and ends with its input.

    Args:
        environment: More variables of its environment.

    Raises:
        OSError: Ruby is missing, or a gem that the program needs.
    """

    def __init__(self, program: Path, **environment: str) -> None:
        self._process = subprocess.Popen(
            tied_to_this_process(["ruby", "-W0", str(program)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LANG": "C.UTF-8", **environment},
        )
        self.greeting = self._line()
        if not self.greeting:
            _, complaint = self._process.communicate()
            raise FileNotFoundError(complaint.decode().strip().splitlines()[0] if complaint else "ruby said nothing")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def answers(self, questions: Sequence[str]) -> list[str]:
        """The answer to each question; together they must fit into a pipe."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{question}\n" for question in questions).encode())
        self._process.stdin.flush()
        return [self._line() for _ in questions]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()
