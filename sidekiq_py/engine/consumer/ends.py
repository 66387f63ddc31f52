"""
How jobs ended, on its way to Redis.

An end that Redis did not hear, as it was away, waits, and those after it wait behind it: a consumer must not wait for
Redis once for each job. An end that Redis has refused, as where a key is of another type or the user has no right to
it, waits apart: others may go well. Each may be told twice.
"""

import logging
from collections import deque
from collections.abc import Callable

from sidekiq_py.errors import RedisError, RedisReplyError

__all__ = ("Ends",)

_log = logging.getLogger("sidekiq")

_MOST_REFUSED = 10_000
# In one round; where so many are refused, the next will be as well.
_MOST_REFUSALS = 100

End = Callable[[], None]


class Ends:
    """Those of one process. Ends are told in any thread, and told again in one at a time."""

    def __init__(self) -> None:
        self._unheard: deque[End] = deque()
        self._refused: deque[End] = deque()

    def __repr__(self) -> str:
        return f"<Ends unheard={len(self._unheard)} refused={len(self._refused)}>"

    @property
    def is_full(self) -> bool:
        """Redis has refused so many that no more jobs should be taken."""
        return len(self._refused) >= _MOST_REFUSED

    def tell(self, end: End) -> None:
        """Tell of one. Does not raise."""
        if self._unheard:
            self._unheard.append(end)
            return
        try:
            self._tell_or_set_apart(end)
        except RedisError as error:
            _log.warning("the end of a job could not be told, trying again until it works: %s", error)
            self._unheard.append(end)

    def tell_again(self) -> None:
        """
        Tell what Redis has not heard of, and try again what it has refused.

        Raises:
            RedisError: Redis is out of reach.
        """
        refused_before = len(self._refused)
        while self._unheard:
            self._tell_or_set_apart(self._unheard[0])
            self._unheard.popleft()
        refusals = 0
        for _ in range(refused_before):
            end = self._refused[0]
            try:
                end()
            except RedisReplyError:
                self._refused.append(end)
                refusals += 1
            self._refused.popleft()
            if refusals >= _MOST_REFUSALS:
                return

    def forget(self) -> None:
        """The jobs are others' now."""
        self._unheard.clear()
        self._refused.clear()

    def _tell_or_set_apart(self, end: End) -> None:
        try:
            end()
        except RedisReplyError as error:
            _log.warning("Redis refuses the end of a job, which stays in flight and is tried again: %s", error)
            self._refused.append(end)
