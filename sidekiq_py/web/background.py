"""What takes too long to read while a visitor waits for the page."""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Generic, TypeVar

from sidekiq_py.clock import monotonic

T = TypeVar("T")

# An open page looks at least once a second; a visitor without JavaScript may reload a page this much later.
_GRACE_SECONDS = 30.0


class BackgroundValue(Generic[T]):
    """
    A value that a thread reads now and then, and only while someone views a page that shows it.

    Args:
        name: The thread's name.
        read: Takes the last value, at first None, and returns the new one. It must not raise.
        seconds: The least time between two reads.
    """

    def __init__(self, name: str, read: Callable[[T | None], T], seconds: float) -> None:
        self._name = name
        self._read = read
        self._seconds = seconds
        self._lock = Lock()
        self._value: T | None = None
        self._began_at = float("-inf")
        self._ended_at = float("-inf")
        self._is_reading = False
        self._is_outdated = False

    def look(self) -> T | None:
        """
        The last value. Reads it anew if it is too old.

        None until there is a value, and if nobody has looked for so long that the last one says nothing about today.
        """
        with self._lock:
            now = monotonic()
            if now - self._began_at >= self._seconds and not self._is_reading:
                Thread(target=self._renew, name=self._name, daemon=True).start()
                # The time of the beginning, so that what changes in the meantime is read, too, after `forget`.
                self._is_reading, self._began_at = True, now
                self._is_outdated = now - self._ended_at > self._seconds + _GRACE_SECONDS
            return None if self._is_outdated else self._value

    def forget(self) -> None:
        """Read the value anew at the next look, because something was changed."""
        with self._lock:
            self._began_at = float("-inf")

    def _renew(self) -> None:
        value = self._read(self._value)
        with self._lock:
            self._value, self._is_reading, self._is_outdated = value, False, False
            self._ended_at = monotonic()
