"""
Prints the demo: 80 columns at most, colours only on a terminal, plain ASCII if the terminal supports nothing else.

Each line begins with its source: the code that runs, Redis, or the output of a worker.
"""

import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence

import click

from sidekiq_py.demo.payload_view import Mark, lines, parts

_MAX_WIDTH = 80
_MARGIN = "  "
_LABEL_WIDTH = 9
_MARK_SIGNS: Mapping[Mark, str] = {"new": "+", "changed": "~", "kept": " "}
_MARK_COLOURS: Mapping[Mark, str | None] = {"new": "green", "changed": "yellow", "kept": None}
_COLOURS = {"python": "blue", "ruby": "red", "redis": "magenta"}
_IN_ASCII = str.maketrans({"─": "-", "✓": "*", "✗": "!", "→": ">", "…": "~"})


class Screen:
    """
    The demo's output.

    Args:
        pace_seconds: The pause after each block, for reading.
    """

    def __init__(self, pace_seconds: float) -> None:
        self._pace_seconds = pace_seconds
        self._width = min(_MAX_WIDTH, shutil.get_terminal_size((_MAX_WIDTH, 24)).columns)
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
        self._is_ascii = not encoding.startswith("utf")
        # None lets click detect whether this is a terminal. https://no-color.org
        self._colour = False if os.environ.get("NO_COLOR") else None
        self._is_after_gap = True

    def title(self, text: str) -> None:
        """Print the first line."""
        self._is_after_gap = False
        self._gap()
        self._echo(click.style(_MARGIN + text, bold=True))
        self._gap()

    def heading(self, number: int, text: str) -> None:
        """Print the first line of a step."""
        line = f"── {number}  {text} "
        self._gap()
        self._echo(click.style(line + "─" * max(0, self._width - len(line)), bold=True))
        self._gap()

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self._gap()
        for line in _wrapped(text, self._width - len(_MARGIN)):
            self._echo(_MARGIN + line)
        self._gap()
        self.pause()

    def row(self, label: str, text: str) -> None:
        """Print a line of a table with two columns, without a pause."""
        self._labelled(label, "", _wrapped(text, self._room))

    def code(self, language: str, line: str, result: str | None) -> None:
        """Print a line of code that ran, and its result."""
        self._labelled(language, ">", _wrapped(line, self._room))
        if result is not None:
            self._labelled("", "", [f"=> {result}"])
        self.pause()

    def command(self, line: str) -> None:
        """Print a shell command that ran."""
        self._labelled("$", "", [line])
        self.pause()

    def redis(self, command: str, payload: str | None = None, *, before: str | None = None) -> None:
        """
        Print a command that Redis received, or what Redis holds.

        Args:
            command: The command on one line, without the payload.
            payload: The job's bytes.
            before: The earlier bytes of the job, to mark the differences.
        """
        self._labelled("redis", "", _wrapped(command, self._room))
        if payload is not None:
            for mark, line in lines(parts(payload, before), self._room - 1):
                sign = _MARK_SIGNS[mark].rjust(_LABEL_WIDTH + len(_MARGIN) - 1)
                is_old = before is not None and mark == "kept"
                self._echo(click.style(f"{sign} {line}", fg=_MARK_COLOURS[mark], dim=is_old))
        self.pause()

    def note(self, text: str) -> None:
        """Print a remark on the previous line."""
        self._labelled("", "", [f"({text})"])

    def output(self, who: str, text: str) -> None:
        """Print what a worker printed."""
        self._labelled(who, ":", _wrapped(text, self._room))

    def seen(self, text: str) -> None:
        """Print a fact that this step has verified."""
        self._gap()
        self._echo(click.style(f"{_MARGIN}✓ {text}", fg="green", bold=True))
        self.pause()

    def summary(self, steps: Sequence[str], text: str) -> None:
        """Print the last block, after every step was verified."""
        self._gap()
        self._echo(click.style("─" * self._width, bold=True))
        self._gap()
        for number, step in enumerate(steps, 1):
            self._echo(click.style(f"{_MARGIN}✓ ", fg="green", bold=True) + f"{number}  {step}")
        self.say(text)

    def failure(self, text: str) -> None:
        """Print what could not be verified."""
        self._gap()
        for line in text.splitlines():
            self._echo(click.style(f"{_MARGIN}✗ {line}", fg="red", bold=True))

    def raw(self, text: str) -> None:
        """Print lines unchanged, such as the end of a log."""
        self._echo(text)

    def pause(self) -> None:
        """Pause to give the user time to read."""
        if self._pace_seconds > 0:
            threading.Event().wait(self._pace_seconds)

    @property
    def _room(self) -> int:
        return self._width - len(_MARGIN) - _LABEL_WIDTH

    def _labelled(self, label: str, sign: str, texts: Sequence[str]) -> None:
        for number, text in enumerate(texts or [""]):
            shown = f"{label}{sign}" if number == 0 else ""
            styled = click.style(shown.ljust(_LABEL_WIDTH), fg=_COLOURS.get(label))
            self._echo(f"{_MARGIN}{styled}{text}".rstrip())

    def _gap(self) -> None:
        """Print a blank line, unless the last line is blank."""
        if not self._is_after_gap:
            self._echo("")
        self._is_after_gap = True

    def _echo(self, text: str) -> None:
        self._is_after_gap = False
        click.echo(text.translate(_IN_ASCII) if self._is_ascii else text, color=self._colour)


def _wrapped(text: str, width: int) -> list[str]:
    # Do not break at hyphens, because names of packages contain them.
    return textwrap.wrap(text, width, break_on_hyphens=False)
