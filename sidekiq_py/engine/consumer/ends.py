"""
Writes the outcome of delivered jobs to Redis, and retries the writes that failed.

If Redis is unreachable, the write is queued, and all later ones queue behind it: a consumer must not wait for Redis
once for each job. If Redis refuses a write, because a key has another type or the user lacks the permission, that write
is set aside, because others may succeed. A write may be sent twice.
"""

import threading
from collections import deque
from collections.abc import Callable

from sidekiq_py.errors import RedisError, RedisReplyError, rights_hint
from sidekiq_py.logs import log

_MOST_REFUSED = 10_000
# Per round: after this many refusals, the next write would be refused too.
_MOST_REFUSALS = 100

End = Callable[[], None]


class Ends:
    """The pending writes of one process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._queued: deque[End] = deque()
        self._refused: deque[End] = deque()
        # A closing session retries, too, and a slow Redis may hold the housekeeper up for longer than it waits.
        self._retrying = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if Redis has refused so many writes that no more jobs should be fetched."""
        return len(self._refused) >= _MOST_REFUSED

    def write(self, end: End) -> None:
        """Write the end of one job, or queue it for later. Does not raise."""
        if self._queued:
            self._queued.append(end)
            return
        try:
            self._write_or_set_aside(end)
        except RedisError as error:
            log.warning("the end of a job could not be written; trying again until it works: %s", error)
            self._queued.append(end)

    def retry(self) -> None:
        """
        Send the queued writes, and retry those that Redis has refused.

        Raises:
            RedisError: Redis is unreachable.
        """
        with self._retrying:
            refused_before = len(self._refused)
            while self._queued:
                self._write_or_set_aside(self._queued[0])
                self._queued.popleft()
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
        """Drop all pending writes, because this process no longer owns the jobs."""
        self._queued.clear()
        self._refused.clear()

    def _write_or_set_aside(self, end: End) -> None:
        try:
            end()
        except RedisReplyError as error:
            what = "Redis refused the end of a job; the job stays in flight, and the write is retried"
            log.warning("%s: %s%s", what, error, rights_hint(error))
            self._refused.append(end)
