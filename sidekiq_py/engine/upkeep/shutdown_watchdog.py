"""
Watches Redis while a worker stops, so that one that hangs does not hold the process.

A Redis that is down says so at once. One that accepts and never answers (a frozen server, a network that is gone)
costs a whole timeout at every step of the stop, one after the other. Here it is asked all the time; when it has been
silent for long enough and nothing is left to be waited for, every call fails at once, as if it were down. Whoever finds
the process gone brings its jobs back.
"""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sidekiq_py.clock import Wakeable, monotonic
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool

_MOST_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.25
_LOOK_SECONDS = 0.05

_log = logging.getLogger("sidekiq")


class ShutdownWatchdog:
    """
    A context manager around a stop.

    Args:
        pool: What is abandoned.
        may_give_up: No job runs any more, or its time is over; before that a Redis that comes back is still of use.
    """

    def __init__(self, pool: Pool, may_give_up: Callable[[], bool]) -> None:
        self._pool = pool
        self._link = pool.new_link()
        self._may_give_up = may_give_up
        self._patience_seconds = min(_MOST_PATIENCE_SECONDS, pool.settings.socket_timeout_seconds)
        self._end = Wakeable()
        self._answered_at = monotonic()
        self._is_asked = False
        self._thread = threading.Thread(target=self._run, name="sidekiq.shutdown_watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.wake()
        self._thread.join(timeout=_PAUSE_SECONDS)

    def _run(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            pause = self._look()
            if monotonic() - self._answered_at > self._patience_seconds and self._may_give_up():
                _log.warning(
                    "Redis has not answered for %g seconds; leaving without it. Whoever finds this process gone brings "
                    "its jobs back",
                    self._patience_seconds,
                )
                self._pool.abandon()
                break
        self._link.close()

    def _look(self) -> float:
        """Ask, or see whether the answer has come; returns the seconds until the next look."""
        try:
            return self._ask(self._link)
        except RedisReplyError:
            # It refuses, and so it lives.
            self._answered_at = monotonic()
        except (RedisConnectionError, ReplyLostError):
            pass
        self._is_asked = False
        return _PAUSE_SECONDS

    def _ask(self, link: Link) -> float:
        if not self._is_asked:
            link.send(link.pack((("PING",),)))
            self._is_asked = True
        if not link.wait_readable(_LOOK_SECONDS):
            return 0.0
        link.receive()
        self._is_asked = False
        self._answered_at = monotonic()
        return _PAUSE_SECONDS
