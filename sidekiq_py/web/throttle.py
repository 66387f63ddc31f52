"""Limits how fast someone can guess passwords."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from sidekiq_py.clock import monotonic

_FREE_TRIES = 5
_LONGEST_PAUSE_SECONDS = 60.0
_FORGET_SECONDS = 3600.0
_MOST_KEPT = 10_000


class Throttle:
    """
    Counts failed attempts by key (an address, an account's name).

    After five, every further failure doubles a pause during which attempts are rejected unchecked, up to a minute. An
    hour after a key's last failure, its count starts again at zero. The counts are kept in this process only.

    Args:
        clock: Returns the seconds since some moment.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        # Key → number of failures and the time of the last one; oldest first.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def begin(self, *keys: str) -> float:
        """
        Count an attempt as a failure, until `succeed` takes that back.

        It is counted before the password is checked. Otherwise requests that arrive at the same time would all get
        through.

        Returns:
            How many seconds to wait before the next attempt with any of *keys*; 0.0 if this attempt may proceed.
        """
        now = self._clock()
        with self._lock:
            for key in keys:
                if key in self._failures and now - self._failures[key][1] > _FORGET_SECONDS:
                    del self._failures[key]
            wait = max((self._left(key, now) for key in keys), default=0.0)
            if wait:
                return wait
            for key in keys:
                count, _ = self._failures.pop(key, (0, now))
                self._failures[key] = (count + 1, now)
            while len(self._failures) > _MOST_KEPT:
                self._failures.popitem(last=False)
            return 0.0

    def succeed(self, *keys: str) -> None:
        """Forget the failures of *keys*."""
        with self._lock:
            for key in keys:
                self._failures.pop(key, None)

    def _left(self, key: str, now: float) -> float:
        count, last = self._failures.get(key, (0, now))
        if count < _FREE_TRIES:
            return 0.0
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** (count - _FREE_TRIES))
        return max(0.0, last + pause - now)
