"""A step of a demo."""

from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """
    One thing that the demo does, waits for and shows.

    Args:
        title: One line, which the summary repeats.
        play: Runs the step; raises a `SidekiqError` if it could not be verified.
    """

    title: str
    play: Callable[[], None]
