"""Translates `result_backend` and its options into Redis settings."""

from typing import Any
from urllib.parse import quote

from sidekiq_celery._config.broker import own_url, timeouts
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py.extension import RedisSettings

# How many idle connections are kept. More are opened when needed.
_POOL_SIZE = 10


def result_settings(app: App, url: str | None) -> RedisSettings:
    """
    Return the settings of the Redis that holds the results of *app*. They have no key prefix: result keys include it.

    Args:
        url: `redis://`, `rediss://`, `socket://`, `unix://`, `sentinel://…;sentinel://…`; None to use the settings
            `redis_host`, `redis_port` and so on.

    Raises:
        ConfigError: The URL is malformed.
        ImproperlyConfigured: The URL or the settings cannot be used.
    """
    conf = app.conf
    if conf.get("redis_backend_credential_provider"):
        raise ImproperlyConfigured(
            "redis_backend_credential_provider is not supported; put the user and password into result_backend, as "
            "in rediss://user:password@host:6379/0"
        )
    wanted = url if url and not url.endswith("://") else _url_of_settings(conf)
    scheme = wanted.partition("://")[0].lower()
    if scheme == "socket":
        scheme, wanted = "unix", "unix" + wanted[len("socket") :]
    options = conf.result_backend_transport_options or {}
    if scheme == "sentinel" and not options.get("master_name"):
        raise ImproperlyConfigured(
            "result_backend names sentinels: write it as in 'sentinel://host1:26379;sentinel://host2:26379/0', and "
            "name the master: result_backend_transport_options = {'master_name': 'mymaster'}"
        )
    return RedisSettings(
        own_url(wanted, scheme, options, conf.get("redis_backend_use_ssl"), "result_backend"),
        pool_size=conf.get("redis_max_connections") or _POOL_SIZE,
        setting="result_backend",
        **timeouts(conf.get("redis_socket_timeout"), conf.get("redis_socket_connect_timeout")),
    )


def _url_of_settings(conf: Any) -> str:
    user, password = (quote(conf.get(f"redis_{name}") or "", safe="") for name in ("username", "password"))
    credentials = f"{user}:{password}@" if user or password else ""
    host, port, db = conf.get("redis_host"), conf.get("redis_port"), conf.get("redis_db")
    return f"redis://{credentials}{host or 'localhost'}:{port or 6379}/{db or 0}"
