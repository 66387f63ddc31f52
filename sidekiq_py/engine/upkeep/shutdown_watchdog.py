"""
Watches Redis while a worker stops, so that a hanging Redis does not hold up the process.

If Redis is down, every call fails at once. If it accepts connections but never replies (a frozen server, a broken
network), every step of the stop runs into a timeout, one after the other. So the watchdog pings Redis all the time.
When Redis has been silent for long enough and there is nothing left to wait for, the watchdog makes every call fail at
once, as if Redis were down. Another worker then recovers the jobs of this process.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from sidekiq_py.clock import Wakeable, monotonic
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool

_MOST_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.25
_LOOK_SECONDS = 0.05


class ShutdownWatchdog:
    """
    A context manager around a stop.

    Args:
        pool: The connections to abandon.
        may_give_up: Returns True when no job runs any more or the jobs' time is over. Before that, it is still worth
            waiting for Redis to come back.
        on_giving_up: Called when every call fails from then on.
    """

    def __init__(self, pool: Pool, may_give_up: Callable[[], bool], *, on_giving_up: Callable[[], object]) -> None:
        self._pool = pool
        self._link = pool.new_link()
        self._may_give_up = may_give_up
        self._on_giving_up = on_giving_up
        self._patience_seconds = min(_MOST_PATIENCE_SECONDS, pool.settings.socket_timeout_seconds)
        self._end = Wakeable()
        self._answered_at = monotonic()
        self._is_asked = False
        self._thread = threading.Thread(target=self._run, name="sidekiq.shutdown_watchdog", daemon=True)

    def __enter__(self) -> Self:
        # If the system allows no more threads, the stop has to do without it.
        with suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end.wake()
        if self._thread.is_alive():
            self._thread.join(timeout=_PAUSE_SECONDS)

    def _run(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            pause = self._look()
            if monotonic() - self._answered_at > self._patience_seconds and self._may_give_up():
                log.warning(
                    "Redis has not replied for %g seconds; stopping without it. Another worker will recover the jobs "
                    "of this process",
                    self._patience_seconds,
                )
                self._pool.abandon()
                self._on_giving_up()
                break
        self._link.close()

    def _look(self) -> float:
        """Send a ping, or check for the reply. Returns the seconds until the next check."""
        link = self._link
        try:
            if not self._is_asked:
                link.send(link.pack((("PING",),)))
                self._is_asked = True
            if not link.wait_readable(_LOOK_SECONDS):
                return 0.0
            link.receive()
            self._answered_at = monotonic()
        except RedisReplyError:
            # An error reply shows that Redis is alive.
            self._answered_at = monotonic()
        except (RedisConnectionError, ReplyLostError):
            pass
        self._is_asked = False
        return _PAUSE_SECONDS
