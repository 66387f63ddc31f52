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

from sidekiq_py.clock import monotonic
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
        self._may_give_up = may_give_up
        self._on_giving_up = on_giving_up
        self._patience_seconds = min(_MOST_PATIENCE_SECONDS, pool.settings.socket_timeout_seconds)
        self._has_ended = threading.Event()
        self._answered_at = monotonic()
        # Two threads, because a ping waits for seconds, already for the connection: the jobs' time may end meanwhile.
        self._threads = (
            threading.Thread(target=self._ping, name="sidekiq.shutdown_pings", daemon=True),
            threading.Thread(target=self._watch, name="sidekiq.shutdown_watchdog", daemon=True),
        )

    def __enter__(self) -> Self:
        # If the system allows no more threads, the stop has to do without them.
        with suppress(RuntimeError):
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._has_ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=_PAUSE_SECONDS)

    def _ping(self) -> None:
        while not self._has_ended.is_set():
            # An error reply shows that Redis is alive.
            with suppress(RedisConnectionError, ReplyLostError):
                with suppress(RedisReplyError):
                    # On a link of the pool: one of its own could not be made while no sentinel knows the primary.
                    self._pool.command("PING", idempotent=False)
                self._answered_at = monotonic()
            self._has_ended.wait(_PAUSE_SECONDS)

    def _watch(self) -> None:
        while not self._has_ended.wait(_LOOK_SECONDS):
            if monotonic() - self._answered_at > self._patience_seconds and self._may_give_up():
                log.warning(
                    "Redis has not replied for %g seconds; stopping without it. Another worker will recover the jobs "
                    "of this process",
                    self._patience_seconds,
                )
                self._pool.abandon()
                self._on_giving_up()
                return
