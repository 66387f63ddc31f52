"""Records what was seen, and waits for more."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import SidekiqError

T = TypeVar("T")

WAIT_SECONDS = 15.0
_PAUSE_SECONDS = 0.02


class NotSeenError(SidekiqError):
    """A step of the demo waited for something that did not happen."""


class Record(Generic[T]):
    """A list that one thread fills while another waits for an entry."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._news = threading.Condition()

    def add(self, entry: T) -> None:
        """Add an entry."""
        with self._news:
            self._entries.append(entry)
            self._news.notify_all()

    def position(self) -> int:
        """The record's current end; a wait can start here to see only later entries."""
        return len(self._entries)

    def last(self, count: int) -> list[T]:
        """The last *count* entries."""
        return self._entries[-count:]

    def wait_for(self, matches: Callable[[T], bool], what: str, *, since: int = 0) -> T:
        """
        Wait for the first entry that matches.

        Args:
            what: What is awaited; the error message has it after "not seen within … s:".
            since: The `position` at which to start.

        Raises:
            NotSeenError: No entry matched within `WAIT_SECONDS`.
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


def wait_until(check: Callable[[], bool], what: str) -> None:
    """
    Poll *check* until it returns True.

    Raises:
        NotSeenError: *check* did not return True within `WAIT_SECONDS`.
    """
    deadline = monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not check():
        if monotonic() > deadline:
            raise NotSeenError(f"not seen within {WAIT_SECONDS:g} s: {what}")
        pause.wait(_PAUSE_SECONDS)
