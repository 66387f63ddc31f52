"""
Results in Redis, under Celery's keys and in Celery's bytes, so that our clients and Celery's read each other's results.

`celery-task-meta-<id>` holds a result until `result_expires`; the same text is published on the channel of that name.
`celery-taskset-meta-<id>` lists the results that belong to a group. A result is written by the script that settles
jobs: as a part of settling if the job is in the same database, on its own otherwise. Either way, a first SUCCESS is
never overwritten.

Source: Celery 5.7.0, `celery.backends.redis`.
"""

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from sidekiq_celery import states
from sidekiq_celery._config.broker import own_url, redis_settings
from sidekiq_celery._send.retries import with_retries
from sidekiq_celery.backends.awaiting import Awaiting
from sidekiq_celery.backends.interface import masked, unwritten
from sidekiq_celery.backends.key_value import BaseKeyValueStoreBackend
from sidekiq_celery.backends.location import result_settings
from sidekiq_celery.backends.many_keys import KEYS_AT_ONCE, sizes_of, texts_of
from sidekiq_celery.exceptions import BackendStoreError
from sidekiq_celery.utils.functional import chunks
from sidekiq_py.errors import RedisConnectionError, RedisError, ReplyLostError
from sidekiq_py.extension import Command, Effect, Link, Pool, RedisSettings, Unless, is_same_database, write

__all__ = ("RedisBackend", "SentinelBackend")

logger = logging.getLogger("celery.backends.redis")

T = TypeVar("T")

# The beginning of a successful result's json: the state is the first field.
_SUCCEEDED = '{"status": "SUCCESS"'
_PASSING = (RedisConnectionError, ReplyLostError)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


class _ResultPool(Pool):
    """Raises errors that are also redis-py's and kombu's, because programs that come from Celery catch those."""

    def run(self, use: Callable[[Link], T], *, idempotent: bool = True) -> T:
        """Run *use* as the engine's pool does."""
        try:
            return super().run(use, idempotent=idempotent)
        except RedisError as error:
            from sidekiq_celery.backends.redis_errors import as_redis_pys

            known = as_redis_pys(error)
            if known is error:
                raise
            raise known from error


class RedisBackend(Awaiting, BaseKeyValueStoreBackend):
    """
    Results in Redis. One connection and one thread of this process listen on behalf of all waiters.

    Args:
        url: As in `result_backend`.
    """

    supports_autoexpire = True
    supports_native_join = True
    supports_result_compression = True
    supports_failure_expires = True

    _MAX_STR_VALUE_SIZE = 536870912

    def __init__(self, host: str | None = None, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(expires_type=int, url=url or host, **kwargs)
        self.thread_safe = True
        failure = self.app.conf.result_failure_expires
        self.failure_expires = self.expires if failure is None else self.prepare_expires(failure, type=int)
        self.settings: RedisSettings = result_settings(self.app, self.url)
        self._pool = _ResultPool(self.settings)
        if self.compression and "decode_responses" in parse_qs(urlsplit(self.settings.url).query):
            # As in Celery, whose clients read text there.
            warnings.warn(
                "result_compression has no effect, because the URL of the results has decode_responses", stacklevel=2
            )
            self._codec.compression = None

    def close(self) -> None:
        self._pool.close()

    @cached_property
    def retry_policy(self) -> Mapping[str, Any]:  # type: ignore[override]
        """How often a write is retried when Redis cannot be reached."""
        options = self.app.conf.result_backend_transport_options or {}
        return {**super().retry_policy, **options.get("retry_policy", {})}

    @property
    def max_connections(self) -> int | None:
        """The setting `redis_max_connections`."""
        limit: int | None = self.app.conf.redis_max_connections
        return limit

    def on_connection_error(self, max_retries: int | None, exc: BaseException, intervals: Any, retries: int) -> Any:
        """Log that the connection was lost. Returns the next of *intervals*: the seconds to wait."""
        pause = next(intervals)
        logger.error("Connection to Redis lost: Retry (%s/%s) in %.2f seconds.", retries, max_retries or "Inf", pause)
        return pause

    @property
    def connparams(self) -> dict[str, Any]:
        """The parameters of a redis-py connection, for programs that open one. Nothing here does."""
        settings = self.settings
        limits = {
            "max_connections": self.max_connections,
            "socket_timeout": settings.socket_timeout_seconds,
            "socket_connect_timeout": settings.connect_timeout_seconds,
        }
        return self._params_from_url(self._redis_py_url, limits)

    def _params_from_url(self, url: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """
        The parameters of a redis-py connection to *url*, beside *defaults*.

        celery_longterm_scheduler binds this method to a store of its own, so nothing here may ask *self*.
        """
        from redis.connection import parse_url

        scheme = url.partition("://")[0].lower()
        engine_url = own_url(url, "unix" if scheme == "socket" else scheme, {}, None, "result_backend")
        place = parse_url(engine_url)  # type: ignore[no-untyped-call]
        server = {} if "path" in place else {"host": "localhost", "port": 6379}
        return {**server, **defaults, "db": 0, **place}

    @cached_property
    def client(self) -> Any:
        """A redis-py client, for programs that use one. Nothing here does."""
        import redis

        return redis.Redis.from_url(self._redis_py_url)

    @property
    def _redis_py_url(self) -> str:
        if "+sentinel://" in self.settings.url:
            raise NotImplementedError("There is no client for a Redis behind sentinels; make one with redis.sentinel")
        return self.settings.url

    # Storing

    def effects_for(
        self,
        task_id: str,
        state: str,
        result: Any,
        traceback: Any = None,
        request: Any = None,
        *,
        settings: RedisSettings | None = None,
    ) -> list[Effect] | None:
        prefix = self._broker_prefix if settings is None else self._prefix_within(settings)
        if prefix is None:
            return None
        key = self.get_key_for_task(task_id).decode()
        value = self._value_of(task_id, self.encode_result(result, state), state, traceback, request)
        return self._effects(task_id, key[len(prefix) :], value, state)

    @cached_property
    def _broker_prefix(self) -> str | None:
        return self._prefix_within(redis_settings(self.app, self.app.conf.broker_read_url))

    def _prefix_within(self, settings: RedisSettings) -> str | None:
        """The engine's key prefix there. None if results are elsewhere, or if their keys do not start with it."""
        prefix = settings.key_prefix
        if not self.task_keyprefix.startswith(prefix.encode()) or not is_same_database(self.settings, settings):
            return None
        return prefix

    def _store_value(self, task_id: str, value: Any, state: str) -> None:
        self._write(self._effects(task_id, self.get_key_for_task(task_id).decode(), value, state))

    def _effects(self, task_id: str, key: str, value: str | bytes, state: str) -> list[Effect]:
        commands = self._commands(key, value, self._ttl_of(state))
        if self._codec.is_plain_json:
            return [Unless(key, _SUCCEEDED, commands)]
        # With other serializers, the first bytes do not show the state.
        if self._get_task_meta_for(task_id)["status"] == states.SUCCESS:
            return []
        return list(commands)

    def _ttl_of(self, state: str) -> int | None:
        ttl: int | None = self.failure_expires if state == states.FAILURE else self.expires
        return ttl

    def _commands(self, key: str, value: str | bytes, ttl: int | None) -> tuple[Command, ...]:
        if len(value) > self._MAX_STR_VALUE_SIZE:
            raise BackendStoreError("value too large for Redis backend")
        store: Command = ("SETEX", key, ttl, value) if ttl else ("SET", key, value)
        return store, ("PUBLISH", key, value)

    def _set_with_state(self, key: Any, value: Any, state: str) -> Any:
        return self.set(key, value, expires=self._ttl_of(state))

    def set(self, key: Any, value: Any, expires: int | None = None, **retry_policy: Any) -> Any:
        """Store *value* under *key* for *expires* seconds, by default `result_expires`, and publish it."""
        name = key.decode() if isinstance(key, bytes) else key
        return self._write(self._commands(name, value, self.expires if expires is None else expires), **retry_policy)

    def _write(self, effects: Any, **retry_policy: Any) -> None:
        def write_all() -> None:
            self._pool.run(lambda link: write(link, effects))

        self.ensure(write_all, (), **retry_policy)

    def ensure(self, fun: Callable[..., Any], args: Any, **policy: Any) -> Any:
        """Call *fun*, and call it again as `retry_policy` says if Redis cannot be reached."""

        def report(error: Exception, number: int, limit: Any, pause: float) -> None:
            logger.error("Connection to Redis lost: Retry (%s/%s) in %.1fs: %s", number, limit or "Inf", pause, error)

        return with_retries(lambda: fun(*args), lambda: {**self.retry_policy, **policy}, _PASSING, report)

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """True if Redis could not be reached or its reply was lost. Writing a result twice does no harm."""
        return isinstance(exc, _PASSING)

    # Reading

    def get_task_meta(self, task_id: str, cache: bool = True) -> Any:
        """As of every backend; a run of this process whose end is decided counts as if it were stored already."""
        meta = super().get_task_meta(task_id, cache)
        end = unwritten.get(task_id)
        if end is None or meta["status"] == states.SUCCESS:
            return meta
        state, result, traceback, request = end
        return self.decode_result(self._value_of(task_id, self.encode_result(result, state), state, traceback, request))

    def get(self, key: Any) -> Any:
        """Return the text under *key*, or None."""
        return self._pool.command("GET", key)

    def mget(self, keys: Any) -> Any:
        """Return the texts under *keys*."""
        return list(texts_of(self._pool, keys))

    def sizes(self, keys: Sequence[Any]) -> list[int]:
        """Return how many bytes each key holds; 0 if that is unknown, as for a user who may not use STRLEN."""
        return sizes_of(self._pool, keys)

    def beginnings(self, keys: Sequence[Any], length: int) -> list[bytes]:
        """Return the first *length* bytes under each key; none if they cannot be read."""
        return [text or b"" for text in self._pool.readable([("GETRANGE", key, 0, length - 1) for key in keys])]

    def sized_beginnings(self, keys: Sequence[Any], length: int) -> list[tuple[int, bytes | None]]:
        """Return the size of each key, as `sizes` does, and its first *length* bytes; None if they cannot be read."""
        commands: list[Command] = []
        for key in keys:
            commands += [("STRLEN", key), ("GETRANGE", key, 0, length - 1)]
        replies = self._pool.readable(commands)
        return [(size or 0, text) for size, text in zip(replies[::2], replies[1::2], strict=True)]

    def scan_task_ids(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """
        Run one round of SCAN. Finds the ids of tasks with a stored result, in no particular order.

        Args:
            cursor: 0 to begin.
            count: How many keys Redis examines.

        Returns:
            The next cursor, 0 at the end; and the ids.
        """
        pattern = re.sub(rb"[*?\[\]\\]", rb"\\\g<0>", self.task_keyprefix) + b"*"
        following, found = self._pool.command("SCAN", cursor, "MATCH", pattern, "COUNT", count)
        return int(following), [self._strip_prefix(key) for key in found if _is_text(key)]

    def delete(self, key: Any) -> Any:
        """Remove *key*."""
        self._pool.command("DEL", key)

    def forget_many(self, task_ids: Iterable[str]) -> None:
        """Remove results, many in a round trip; one after the other if there is another way for one."""
        is_own = any(getattr(getattr(self, own.__name__), "__func__", None) is not own for own in _FORGETTING)
        if is_own or self.always_retry:
            for task_id in task_ids:
                self.forget(task_id)
            return
        for some in chunks(iter(task_ids), KEYS_AT_ONCE):
            keys = [self._stop_expecting(task_id) for task_id in some]
            self._pool.command("DEL", *keys)

    def incr(self, key: Any) -> Any:
        """Increment the counter under *key*. Returns its new value."""
        return self._pool.command("INCR", key, idempotent=False)

    def expire(self, key: Any, value: Any) -> Any:
        """Let *key* expire in *value* seconds."""
        return self._pool.command("EXPIRE", key, value)

    def __reduce__(self, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "expires": self.expires})


# What a subclass may override, or a test replace, to remove one result in another way.
_FORGETTING = tuple(getattr(RedisBackend, name) for name in ("forget", "_forget", "delete"))


class SentinelBackend(RedisBackend):
    """Results in a Redis that is found through sentinels: `sentinel://host:26379/0;sentinel://other:26379/0`."""

    def as_uri(self, include_password: bool = False) -> Any:
        """The URLs, by default with their passwords masked."""
        return self.url if include_password else ";".join(map(masked, (self.url or "").split(";")))
