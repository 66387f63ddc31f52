"""The parts of a demo: steps, and the story that they make up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Step:
    """
    One thing that the demo does, waits for and shows.

    Args:
        title: One line, which the summary repeats.
        play: Runs the step; raises a `SidekiqError` if it could not be verified.
    """

    title: str
    play: Callable[[], None]


class Story(Protocol):
    """
    The steps of one demo, and the counters that Sidekiq must show at the end.

    Args:
        runs, failures: The expected counters, over both languages.
    """

    runs: int
    failures: int

    def introduce(self) -> None:
        """Show which workers take part, once all of them are running."""

    def steps(self) -> list[Step]:
        """The steps, in order."""
