"""Translates a kombu connection into Redis settings, for the engine's connections and for kombu's own."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import redis

from sidekiq_celery._config.broker import REDIS_SCHEMES, of_redis, own_url, timeouts
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py.extension import RedisSettings, sentinels_of


def settings_of(connection: Any) -> RedisSettings:
    """
    Return the settings of the Redis that has the jobs of a `kombu.Connection`.

    Raises:
        ImproperlyConfigured: The connection does not lead to a Redis, or uses an unsupported option.
    """
    options: Mapping[str, Any] = connection.transport_options or {}
    if getattr(connection, "credential_provider", None) is not None:
        raise ImproperlyConfigured(
            "sidekiq:// does not support credential_provider; put user and password into the URL"
        )
    url = of_redis(_url_of(connection))
    scheme = urlsplit(url).scheme
    if scheme not in REDIS_SCHEMES:
        raise ImproperlyConfigured(
            f"{scheme}:// is not a Redis URL; use sidekiq://localhost:6379/0 or redis://localhost:6379/0"
        )
    namespace = str(options.get("global_keyprefix") or "").removesuffix(":")
    connect = options.get("socket_connect_timeout") or connection.connect_timeout
    limits = timeouts(options.get("socket_timeout"), connect)
    engine_url = own_url(url, scheme, options, connection.ssl, "broker_url")
    return RedisSettings(engine_url, namespace=namespace, setting="broker_url", **limits)


def _url_of(connection: Any) -> str:
    """The URL as its user wrote it, or one built from the connection's parts. Sentinels are joined by semicolons."""
    host = connection.hostname or "localhost"
    prefix = connection.transport_cls if isinstance(connection.transport_cls, str) else ""
    servers = of_redis(";".join(connection.alt or ()))
    if "sentinel://" in servers:
        return servers
    if "://" in host:
        # kombu splits `sidekiq+socket:///path` at the plus.
        return str("redis+" + host if host.startswith("socket://") else host)
    user = quote(connection.userid or "", safe="")
    password = ":" + quote(connection.password, safe="") if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    database = str(connection.virtual_host or "0").strip("/") or "0"
    scheme = {"sidekiqs": "sidekiqs", "sidekiq+sentinel": "sentinel"}.get(prefix, "sidekiq")
    return f"{scheme}://{user}{password}{'@' if user or password else ''}{host}{port}/{database}"


def redis_pool(settings: RedisSettings, **options: Any) -> redis.ConnectionPool:
    """
    A pool of redis-py connections to the same Redis, for the features of kombu's own transport.

    Args:
        options: Options of redis-py's connections.
    """
    if "+sentinel://" not in settings.url:
        return redis.ConnectionPool.from_url(settings.url, **options)
    asked, service, own, is_secure = sentinels_of(settings)
    primary = asked.master_for(service, redis.Redis, **{"ssl": is_secure, **own, **options})
    pool: redis.ConnectionPool = primary.connection_pool
    return pool
