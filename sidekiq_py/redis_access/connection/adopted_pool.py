"""Uses the settings of a pool that a program has already made with redis-py, blocking or asyncio."""

from dataclasses import replace
from typing import Any

import redis
import redis.asyncio
from redis.asyncio import connection as aio
from redis.connection import AbstractConnection

from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.connections import PlainConnection, completed, probes, server_address, timeouts
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

# Options that decide how commands are sent and replies are read. We set these ourselves.
_OURS = ("decode_responses", "protocol", "retry", "retry_on_error", "retry_on_timeout", "health_check_interval")
# Options that a pool of redis-py 7 or later adds for its own connections, so that it can move them to another server
# during maintenance. In 7 and 8.0 those of a blocking pool are errors for an awaited connection.
_FOREIGN = (
    *("maint_notifications_pool_handler", "maint_notifications_config"),
    *("orig_host_address", "orig_socket_timeout", "orig_socket_connect_timeout"),
)

_BLOCKING: dict[Any, Any] = {
    aio.Connection: PlainConnection,
    aio.SSLConnection: redis.SSLConnection,
    aio.UnixDomainSocketConnection: redis.UnixDomainSocketConnection,
}
AWAITED: dict[Any, Any] = {
    redis.Connection: aio.Connection,
    **{blocking: awaited for awaited, blocking in _BLOCKING.items()},
}

ForeignPool = redis.ConnectionPool | redis.asyncio.ConnectionPool


class AdoptedPool(Pool):
    """
    Links to the server of a redis-py pool, with its connection class, credentials and timeouts.

    The pool's own connections are not used, because they may silently repeat commands and decode replies.

    Args:
        namespace: As in `RedisSettings`.
    """

    def __init__(self, foreign: ForeignPool, namespace: str = "") -> None:
        given, usual = foreign.connection_kwargs, RedisSettings(namespace=namespace)
        super().__init__(
            replace(
                usual,
                socket_timeout_seconds=_seconds(given.get("socket_timeout"), usual.socket_timeout_seconds),
                connect_timeout_seconds=_seconds(given.get("socket_connect_timeout"), usual.connect_timeout_seconds),
            )
        )
        kind: Any = foreign.connection_class
        self.connection_class: type[AbstractConnection] = _BLOCKING.get(kind, kind)
        self.connection_options = {k: v for k, v in given.items() if k not in (*_OURS, *_FOREIGN)}
        self._make = self._make_connection

    def __repr__(self) -> str:
        return f"<AdoptedPool of {self.connection_class.__name__} free={len(self._free)}>"

    @property
    def address(self) -> str:
        """As in `Pool`, from the options of the redis-py pool."""
        options = self.connection_options
        service = getattr(options.get("connection_pool"), "service_name", None)
        if service is not None:
            return f"{service}/{options.get('db', 0)} by sentinels"
        known = {name: options[name] for name in ("host", "port", "db", "path") if options.get(name) is not None}
        return server_address(**known)

    def _make_connection(self, timeout_seconds: float) -> AbstractConnection:
        options = {**self.connection_options, **timeouts(self.settings, timeout_seconds)}
        # A class of the program's own may be one for a socket file, which refuses the options of the others.
        kept_alive = probes(options) if issubclass(self.connection_class, redis.Connection) else {}
        return self.connection_class(**completed({**kept_alive, **options}))


def _seconds(given: Any, usual: float) -> float:
    """redis-py's timeout, or ours if it has none: without one, a call to a Redis that hangs would never return."""
    return float(given) if type(given) in (int, float) and given > 0 else usual


def pool_of(value: Any, namespace: str = "") -> Pool:
    """
    The pool for a value from a program.

    Args:
        value: Our `Pool`, redis-py's `ConnectionPool` or `Redis` (or those of redis.asyncio), or a URL.
        namespace: As in `RedisSettings`. Must be empty for our `Pool`, which has its own.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(value, Pool):
        if namespace:
            raise ConfigError("a Pool of sidekiq_py has its namespace in its settings: RedisSettings(url, namespace=…)")
        return value
    if isinstance(value, (redis.Redis, redis.asyncio.Redis)):
        value = value.connection_pool
    if isinstance(value, (redis.ConnectionPool, redis.asyncio.ConnectionPool)):
        return AdoptedPool(value, namespace)
    raise ConfigError(
        f"{value!r} is not a pool; give sidekiq_py's Pool, redis-py's ConnectionPool or Redis, or a redis:// URL"
    )
