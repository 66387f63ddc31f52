"""What a demo is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Step:
    """
    One thing that is done, waited for and shown.

    Args:
        title: In one line, as the summary repeats it.
        play: Raises a `SidekiqError` if it was not seen to happen.
    """

    title: str
    play: Callable[[], None]


class Story(Protocol):
    """
    The steps of one demo, and what Sidekiq has to say in the end.

    Args:
        runs, failures: Its counters, over both languages.
    """

    runs: int
    failures: int

    def introduce(self) -> None:
        """Say who plays, once they are all there."""

    def steps(self) -> list[Step]:
        """In order."""
