"""
The Redis behind `memory://` in tests: a server for this process alone, started on first use.

A queue within the process would only imitate the engine. A Redis starts in some 50 ms and is the real thing.
"""

import atexit
import os
import threading

from sidekiq_celery._config import broker
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py.errors import ConfigError
from sidekiq_py.extension import Pool, RedisSettings
from sidekiq_py.testing import PrivateRedis

_lock = threading.Lock()
_server: PrivateRedis | None = None


def use_for_memory() -> None:
    """Let apps whose broker is `memory://` use this Redis from now on."""
    broker.in_memory = url


def url() -> str:
    """
    Return the server's URL, starting the server if necessary.

    Raises:
        ImproperlyConfigured: No Redis server program is installed on this machine.
    """
    global _server
    with _lock:
        if _server is None:
            _server = _started()
        return _server.url


def empty() -> None:
    """Remove everything that earlier tests have left there."""
    with _lock:
        server = _server
    if server is not None:
        pool = Pool(RedisSettings(server.url))
        try:
            pool.command("FLUSHALL")
        finally:
            pool.close()


def _started() -> PrivateRedis:
    try:
        server = PrivateRedis()
    except ConfigError as error:
        raise ImproperlyConfigured(
            f"broker_url is memory://, which is a private Redis in tests, but {error}. Or use a Redis of your own: "
            "broker_url in the fixture celery_config"
        ) from error
    server.start()
    atexit.register(_stop, server, os.getpid())
    return server


def _stop(server: PrivateRedis, started_by: int) -> None:
    # A forked child must not stop its parent's server when it exits.
    if os.getpid() == started_by:
        server.stop()
