"""What was seen so far, and waiting for more."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import SidekiqError

T = TypeVar("T")

WAIT_SECONDS = 15.0


class NotSeenError(SidekiqError):
    """A step of the demo waited for something that did not come."""


class Record(Generic[T]):
    """A list that one thread fills while another waits for an entry."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._news = threading.Condition()

    def add(self, entry: T) -> None:
        """Note what was seen."""
        with self._news:
            self._entries.append(entry)
            self._news.notify_all()

    def position(self) -> int:
        """Where the record is now: a wait may look at what comes from here on."""
        return len(self._entries)

    def last(self, count: int) -> list[T]:
        """The latest entries."""
        return self._entries[-count:]

    def wait_for(self, matches: Callable[[T], bool], what: str, *, since: int = 0) -> T:
        """
        The first entry that matches.

        Args:
            what: For the error, after "not seen within … s:".
            since: A `position`.

        Raises:
            NotSeenError: None came within `WAIT_SECONDS`.
        """
        deadline = monotonic() + WAIT_SECONDS
        with self._news:
            while True:
                for entry in self._entries[since:]:
                    if matches(entry):
                        return entry
                left = deadline - monotonic()
                if left <= 0 or not self._news.wait(left):
                    raise NotSeenError(f"not seen within {WAIT_SECONDS:g} s: {what}")


def wait_until(check: Callable[[], bool], what: str, *, every_seconds: float = 0.02) -> None:
    """
    Ask again and again, for facts that nobody tells.

    Raises:
        NotSeenError: *check* was not true within `WAIT_SECONDS`.
    """
    deadline = monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not check():
        if monotonic() > deadline:
            raise NotSeenError(f"not seen within {WAIT_SECONDS:g} s: {what}")
        pause.wait(every_seconds)
