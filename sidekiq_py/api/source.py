"""Which Redis an object of the data API looks at: the one it was given, else the program's."""

from typing import Any

from sidekiq_py.client.sync_client import Client, current, of_pool
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.pool import Pool


def client_for(pool: Any, client: Client | None) -> Client:
    """
    The client to push with.

    Args:
        pool: A `Pool`, a redis-py client or pool, or a URL.
        client: Instead of *pool*.

    Raises:
        ConfigError: Both are given.
    """
    if pool is not None and client is not None:
        raise ConfigError("pool and client both say where Redis is; give one of them")
    if client is not None:
        return client
    return current() if pool is None else of_pool(pool)


def pool_for(pool: Any, client: Client | None) -> Pool:
    """The pool to read with; arguments as for `client_for`."""
    if isinstance(pool, Pool) and client is None:
        return pool
    return client_for(pool, client).pool


class OfRedis:
    """
    What reads one Redis, and keeps nothing of it.

    Args:
        pool: Whose Redis: a `Pool`, a redis-py client, or a URL. Without it and *client*, the program's.
        client: Instead of *pool*.
    """

    def __init__(self, *, pool: Any = None, client: Client | None = None) -> None:
        self._pool = pool_for(pool, client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
