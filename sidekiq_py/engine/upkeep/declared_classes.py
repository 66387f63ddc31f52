"""
Publishes in Redis which classes this process can run, for `sidekiq-py doctor`. Ruby's processes offer no such list.

It costs one EXPIRE a minute: after each heartbeat, it was a ninth of what an idle process costs Redis. The names
themselves are sent once, and again if Redis has lost them.
"""

import math
from collections.abc import Callable

from sidekiq_py import clock
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import declared_classes
from sidekiq_py.registry import Registry


class Declared:
    """
    The classes that one process has declared.

    Args:
        pool: Connections to the Redis where the process is registered.
        identity: The process's identity, as in the heartbeat.
        registry: The jobs that the process can run.
        monotonic: Returns the seconds on a monotonic clock.
    """

    def __init__(
        self, pool: Pool, identity: str, registry: Registry, *, monotonic: Callable[[], float] = clock.monotonic
    ) -> None:
        self._pool = pool
        self._identity = identity
        self._registry = registry
        self._monotonic = monotonic
        self._renewed_at = -math.inf
        self._is_forbidden = False

    def keep(self, *, was_known: bool = True) -> None:
        """
        Keep the list alive. Call it after each heartbeat.

        Args:
            was_known: False if Redis had lost this process, and so most likely the list as well.

        Raises:
            RedisError: Redis is unreachable. If this Redis user may not write our keys, nothing is raised or reported,
                because nothing depends on the list.
        """
        now = self._monotonic()
        if self._is_forbidden or (was_known and now - self._renewed_at < declared_classes.TTL_SECONDS / 3):
            return
        try:
            if not declared_classes.renew(self._pool, self._identity):
                declared_classes.publish(self._pool, self._identity, self._registry.classes())
        except RedisReplyError as error:
            if error.code != "NOPERM":
                raise
            self._is_forbidden = True
        self._renewed_at = now
