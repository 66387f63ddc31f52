"""Finds the backend class for `result_backend`."""

import types
from typing import Any

from sidekiq_celery import _state
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.imports import load_extension_class_names, symbol_by_name

__all__ = ("by_name", "by_url")

_REDIS = "sidekiq_celery.backends.redis:RedisBackend"
_DATABASE = "sidekiq_celery.backends.database:DatabaseBackend"

BACKEND_ALIASES = {
    "cache": "sidekiq_celery.backends.cache:CacheBackend",
    "database": _DATABASE,
    "db": _DATABASE,
    "disabled": "sidekiq_celery.backends.base:DisabledBackend",
    "redis": _REDIS,
    "rediss": _REDIS,
    "sentinel": "sidekiq_celery.backends.redis:SentinelBackend",
    "sidekiq": _REDIS,
    "sidekiqs": _REDIS,
    "unix": _REDIS,
}

_ABSENT = {
    *("amqp", "arangodb", "azureblockblob", "cassandra", "consul", "cosmosdbsql", "couchbase", "couchdb"),
    *("dynamodb", "elasticsearch", "file", "gs", "mongodb", "riak", "rpc", "s3"),
}
"""Celery's backends that are not available here."""


def by_name(backend: Any = None, loader: Any = None, extension_namespace: str = "celery.result_backends") -> Any:
    """
    Return the class that *backend* names: a short name, a name that a package registered (`django-db`), or a path.

    Raises:
        ImproperlyConfigured: There is no such backend. The message says what to use.
    """
    backend = backend or "disabled"
    if not isinstance(backend, str):
        return _no_module(backend, repr(backend))
    aliases = {**BACKEND_ALIASES, **(loader or _state.get_current_app().loader).override_backends}
    if backend not in aliases and ":" not in backend and "." not in backend:
        aliases |= dict(load_extension_class_names(extension_namespace))
        if backend in _ABSENT and backend not in aliases:
            raise ImproperlyConfigured(
                f"result_backend is {backend!r}, which sidekiq_celery does not have. Keep results in Redis, as in "
                "redis://localhost:6379/0; in the broker's database, a result is written as its job is settled"
            )
    path = aliases.get(backend, backend)
    try:
        found = symbol_by_name(path)
    except (ValueError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != backend:
            raise
        raise ImproperlyConfigured(
            f"Unknown result backend: {backend!r}. Did you spell that correctly? ({error!r})"
        ) from error
    return _no_module(found, repr(backend))


def _no_module(found: Any, name: str) -> Any:
    if isinstance(found, types.ModuleType):
        raise ImproperlyConfigured(f"Unknown result backend: {name} is a Python module, not a backend class.")
    return found


def by_url(backend: Any = None, loader: Any = None) -> tuple[Any, str | None]:
    """Return the class and the URL for a URL or a name. `redis+socket:///path` means `socket:///path` in Redis."""
    url = None
    if isinstance(backend, str) and "://" in backend:
        url = backend
        scheme = url.partition("://")[0]
        if "+" in scheme:
            backend, url = url.split("+", 1)
        else:
            backend = scheme
    return by_name(backend, loader), url
