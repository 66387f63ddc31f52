"""Chooses the Redis that an object of the data API uses: the given one, or the program's."""

from typing import Any

from sidekiq_py.client.sync_client import Client, current, of_pool
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.pool import Pool


def client_for(pool: Any, client: Client | None) -> Client:
    """
    The client to push with.

    Args:
        pool: A `Pool`, a redis-py client or pool, or a URL.
        client: A client to use instead of *pool*.

    Raises:
        ConfigError: Both are given, or *client* is not a `Client`.
    """
    if pool is not None and client is not None:
        raise ConfigError("pool and client both say where Redis is; give one of them")
    if client is not None:
        if not isinstance(client, Client):
            raise ConfigError(f"client is {client!r}; give a sidekiq_py.Client, or a URL as pool=")
        return client
    return current() if pool is None else of_pool(pool)


def pool_for(pool: Any, client: Client | None) -> Pool:
    """The pool to read with; arguments as for `client_for`."""
    if isinstance(pool, Pool) and client is None:
        return pool
    return client_for(pool, client).pool


class OfRedis:
    """
    Base of the objects that read one Redis and cache nothing.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, *, pool: Any = None, client: Client | None = None) -> None:
        self._pool = pool_for(pool, client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class SizedOfRedis(OfRedis):
    """Base of those with a size: it is their `len()`, and they are truthy even if they are empty."""

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """How much there is."""
        raise NotImplementedError
