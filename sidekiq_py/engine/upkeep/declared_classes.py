"""
Publishes in Redis which classes this process can run, for `sidekiq-py doctor`. Ruby's processes offer no such list.

It costs one EXPIRE after each heartbeat. The names themselves are sent once, and again if Redis has lost them.
"""

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
        Keep the list alive for another minute.

        Raises:
            RedisError: Redis is unreachable. If this Redis user may not write our keys, nothing is raised or reported,
                because nothing depends on the list.
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
