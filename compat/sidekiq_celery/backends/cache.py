"""`cache+memory://`: keeps results within this process, for tests. Memcached is not supported."""

import threading
import time
from typing import Any

from sidekiq_celery.backends.key_value import KeyValueStoreBackend
from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("CacheBackend",)

_results: dict[bytes, Any] = {}
_changed = threading.Condition()

# A result may arrive between a check and the wait that follows. Then it is noticed after this many seconds.
_LOOK_AGAIN_SECONDS = 0.05


class CacheBackend(KeyValueStoreBackend):
    """
    Results in memory, shared by all apps of this process.

    Raises:
        ImproperlyConfigured: The URL is not `memory://`.
    """

    supports_autoexpire = True
    supports_native_join = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app=app, url=url, **kwargs)
        self.thread_safe = True
        wanted = url or app.conf.get("cache_backend") or ""
        if wanted.partition("://")[0] != "memory":
            raise ImproperlyConfigured(
                f"result_backend is cache+{wanted}; Memcached is not supported. Keep results in Redis, as in "
                "redis://localhost:6379/0, or in this process with cache+memory://"
            )

    def get(self, key: Any) -> Any:
        """Return the text under *key*, or None."""
        return _results.get(self.key_t(key))

    def mget(self, keys: Any) -> Any:
        """Return the texts under *keys*."""
        return [_results.get(self.key_t(key)) for key in keys]

    def set(self, key: Any, value: Any) -> Any:
        """Store *value* under *key*."""
        with _changed:
            _results[self.key_t(key)] = value
            _changed.notify_all()

    def delete(self, key: Any) -> Any:
        """Remove *key*."""
        with _changed:
            _results.pop(self.key_t(key), None)

    def _pause(self, seconds: float) -> float:
        began = time.monotonic()
        with _changed:
            _changed.wait(min(seconds, _LOOK_AGAIN_SECONDS))
        return time.monotonic() - began
