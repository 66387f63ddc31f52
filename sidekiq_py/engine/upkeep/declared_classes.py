"""
Says in Redis which classes this process can run, for `sidekiq-py doctor`: what it cannot know of Ruby's processes.

One EXPIRE after each heartbeat; the names themselves are sent once, and again where Redis has lost them.
"""

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import declared_classes
from sidekiq_py.registry import Registry


class Declared:
    """
    What one process has declared.

    Args:
        pool: To the Redis where it is registered.
        identity: As in the heartbeat.
        registry: The jobs it can run.
    """

    def __init__(self, pool: Pool, identity: str, registry: Registry) -> None:
        self._pool = pool
        self._identity = identity
        self._registry = registry
        self._is_forbidden = False

    def __repr__(self) -> str:
        return f"<Declared {self._identity}{' forbidden' if self._is_forbidden else ''}>"

    def keep(self) -> None:
        """
        Let it stand for another minute.

        Raises:
            RedisError: Redis is out of reach. A user who may not write keys of ours is not told: nothing rests on them.
        """
        if self._is_forbidden:
            return
        try:
            if not declared_classes.renew(self._pool, self._identity):
                declared_classes.publish(self._pool, self._identity, self._registry.classes())
        except RedisReplyError as error:
            if error.code != "NOPERM":
                raise
            self._is_forbidden = True
