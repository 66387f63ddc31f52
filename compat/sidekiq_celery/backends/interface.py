"""
`Backend`: the interface through which the rest of the code uses result backends.

A custom backend defines `_store_result`, `_get_task_meta_for`, `_forget`, and for groups `_save_group`,
`_restore_group` and `_delete_group`. `polling` provides the waiting. Storing a result triggers nothing else: callbacks,
errbacks and chords are part of finishing a task (`sidekiq_celery._workflow.flow`).
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from traceback import clear_frames
from typing import Any

from sidekiq_celery import _state, states
from sidekiq_celery.backends.caches import LastUsed, NoCache
from sidekiq_celery.backends.encoding import Codec
from sidekiq_celery.backends.retrying import Retrying
from sidekiq_celery.backends.values import Values
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import BackendGetMetaError, BackendStoreError, TaskRevokedError, TimeoutError
from sidekiq_celery.utils.functional import first, maybe_list
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.extension import Effect, RedisSettings

# By task id: the state, result, traceback and request that a run of this process has yet to store, together with the
# end of its job. Its hooks and the receivers of its signals may read them, on whatever thread they do so.
unwritten: dict[str, tuple[str, Any, Any, Any]] = {}


def unpickle_backend(cls: Any, args: Any, kwargs: Mapping[str, Any]) -> "Backend":
    """Rebuild a pickled backend, for the current app."""
    backend: Backend = cls(*args, app=_state.get_current_app(), **kwargs)
    return backend


def masked(url: str) -> str:
    """Mask the password in a URL."""
    from kombu.utils.url import maybe_sanitize_url

    shown: str = maybe_sanitize_url(url)
    return shown[:-1] if shown.endswith(":///") else shown


def effects_for(backend: Any, *args: Any, **kwargs: Any) -> list[Effect] | None:
    """`backend.effects_for`; None if the backend is built on classes of Celery itself, which is installed, too."""
    own = getattr(backend, "effects_for", None)
    return None if own is None else own(*args, **kwargs)


class Backend(Values, Retrying):
    """
    Stores and reads results.

    Args:
        app: The app whose settings apply.
        serializer, accept, expires: Override the settings `result_serializer`, `result_accept_content` and
            `result_expires`.
        max_cached_results: How many results are cached in memory once read; -1 for none.
        expires_type: Converts a number of seconds.
        url: As in `result_backend`.
    """

    TimeoutError = TimeoutError

    subpolling_interval: float | None = None
    supports_native_join = False
    """True if the backend has `get_many`."""
    supports_autoexpire = False
    """True if results expire by themselves, and `cleanup` has nothing to do."""
    supports_failure_expires = False
    retry_policy: Mapping[str, Any] = {
        "max_retries": 20, "interval_start": 0, "interval_step": 1, "interval_max": 1,
    }  # fmt: skip

    def __init__(
        self,
        app: App,
        serializer: str | None = None,
        max_cached_results: int | None = None,
        accept: Any = None,
        expires: Any = None,
        expires_type: Callable[[Any], Any] | None = None,
        url: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.app = app
        conf = app.conf
        self.serializer: str = serializer or conf.result_serializer
        self._codec = Codec(
            self.serializer,
            first(None, (accept, conf.result_accept_content, conf.accept_content)),
            self.prepare_compression(conf.result_compression),
        )
        limit = max_cached_results or conf.result_cache_max
        self._cache: dict[str, Any] = NoCache() if limit == -1 else LastUsed(limit)
        self.expires = self.prepare_expires(expires, expires_type)
        if conf.result_failure_expires is not None and not self.supports_failure_expires:
            warnings.warn(
                f"The {type(self).__name__} result backend does not support result_failure_expires, so failed results "
                "expire like others",
                UserWarning,
                stacklevel=2,
            )
        self.always_retry = conf.result_backend_always_retry
        self.max_sleep_between_retries_ms = conf.result_backend_max_sleep_between_retries_ms
        self.base_sleep_between_retries_ms = conf.result_backend_base_sleep_between_retries_ms
        self.max_retries = conf.result_backend_max_retries
        self.thread_safe = conf.get("result_backend_thread_safe", False)
        self.url = url

    def as_uri(self, include_password: bool = False) -> Any:
        """The URL, by default with its password masked."""
        return self.url if include_password else masked(self.url or "")

    # Storing

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> Any:
        """
        Store a result or a state.

        Returns:
            *result* in the form in which it is stored.

        Raises:
            BackendStoreError: Storing failed, also after the retries that settings ask for.
        """
        plain = self.encode_result(result, state)
        self._ensure_retryable(
            self._store_result,
            task_id,
            plain,
            state,
            traceback,
            fallback_exc=partial(BackendStoreError, task_id=task_id, state=state),
            fallback_msg="failed to store result on the backend",
            request=request,
            **kwargs,
        )
        return plain

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
        """
        The commands that store a result as part of the step that settles the job.

        Args:
            settings: The Redis that has the job; by default that of the app's broker.

        Returns:
            None if results are stored elsewhere. Then `store_result` has to be called before the job is settled.

        Raises:
            kombu.exceptions.EncodeError: The result cannot be encoded.
        """
        return None

    def mark_as_started(self, task_id: str, **meta: Any) -> Any:
        """Store that the task is running. `AsyncResult.info` shows *meta*."""
        return self.store_result(task_id, meta, states.STARTED)

    def mark_as_done(
        self, task_id: str, result: Any, request: Any = None, store_result: bool = True, state: str = states.SUCCESS
    ) -> None:
        """Store that the task returned *result*."""
        if store_result and not (request is not None and request.ignore_result):
            self.store_result(task_id, result, state, request=request)
        self._part_of_chord(request, state, result)

    def mark_as_failure(
        self,
        task_id: str,
        exc: Any,
        traceback: Any = None,
        request: Any = None,
        store_result: bool = True,
        call_errbacks: bool = True,
        state: str = states.FAILURE,
    ) -> None:
        """Store that the task raised *exc*."""
        if store_result:
            self.store_result(task_id, exc, state, traceback=traceback, request=request)
        self._part_of_chord(request, state, exc)

    def mark_as_revoked(
        self,
        task_id: str,
        reason: str = "",
        request: Any = None,
        store_result: bool = True,
        state: str = states.REVOKED,
    ) -> None:
        """Store that the task will not run."""
        exc = TaskRevokedError(reason)
        if store_result:
            self.store_result(task_id, exc, state, traceback=None, request=request)
        self._part_of_chord(request, state, exc)

    def mark_as_retry(
        self,
        task_id: str,
        exc: Any,
        traceback: Any = None,
        request: Any = None,
        store_result: bool = True,
        state: str = states.RETRY,
    ) -> Any:
        """Store that the task will run again, because of *exc*."""
        return self.store_result(task_id, exc, state, traceback=traceback, request=request)

    def fail_from_current_stack(self, task_id: str, exc: Any = None) -> Any:
        """Mark the task as failed with the exception being handled. Returns the exception with its traceback."""
        from sidekiq_celery.utils.einfo import ExceptionInfo

        kind, raised, tb = sys.exc_info()
        failure = raised if exc is None else exc
        info = ExceptionInfo((kind, failure, tb))
        self.mark_as_failure(task_id, failure, info.traceback)
        # The exception may be kept for a long time, and would keep everything that its frames hold alive.
        clear_frames(tb)
        return info

    def _part_of_chord(self, request: Any, state: str, result: Any) -> None:
        if request is not None and request.chord:
            self.on_chord_part_return(request, state, result)

    # Reading

    def get_task_meta(self, task_id: str, cache: bool = True) -> Any:
        """
        Read everything that is stored of a task.

        Raises:
            BackendGetMetaError: Reading failed, also after the retries that settings ask for.
        """
        self._ensure_not_eager()
        if cache and task_id in self._cache:
            return self._cache[task_id]
        meta = self._ensure_retryable(
            self._get_task_meta_for,
            task_id,
            fallback_exc=partial(BackendGetMetaError, task_id=task_id),
            fallback_msg="failed to get meta",
        )
        if cache and meta.get("status") == states.SUCCESS:
            self._cache[task_id] = meta
        return meta

    def get_state(self, task_id: str) -> Any:
        """The task's state; PENDING for an unknown id."""
        return self.get_task_meta(task_id)["status"]

    get_status = get_state

    def get_result(self, task_id: str) -> Any:
        """What the task returned or raised."""
        return self.get_task_meta(task_id).get("result")

    def get_traceback(self, task_id: str) -> Any:
        """The text of a failed task's traceback."""
        return self.get_task_meta(task_id).get("traceback")

    def get_children(self, task_id: str) -> Any:
        """The results of the tasks that the task called, as tuples."""
        return self.get_task_meta(task_id).get("children")

    def reload_task_result(self, task_id: str) -> None:
        """Read a result again."""
        self._cache[task_id] = self.get_task_meta(task_id, cache=False)

    def task_result_exists(self, task_id: str) -> bool:
        """True if anything is stored of the task."""
        return bool(self._get_task_meta_for(task_id)["status"] != states.PENDING)

    def is_cached(self, task_id: str) -> bool:
        """True if the result is cached in memory."""
        return task_id in self._cache

    def forget(self, task_id: str) -> None:
        """Remove a result."""
        self._cache.pop(task_id, None)
        self._ensure_retryable(self._forget, task_id)

    # Groups

    def save_group(self, group_id: str, result: Any) -> Any:
        """Store which results belong to a group."""
        return self._ensure_retryable(self._save_group, group_id, result)

    def get_group_meta(self, group_id: str, cache: bool = True) -> Any:
        """What is stored of a group, or None."""
        self._ensure_not_eager()
        if cache and group_id in self._cache:
            return self._cache[group_id]
        meta = self._ensure_retryable(self._restore_group, group_id)
        if cache and meta is not None:
            self._cache[group_id] = meta
        return meta

    def restore_group(self, group_id: str, cache: bool = True) -> Any:
        """The `GroupResult` that was stored, or None."""
        meta = self.get_group_meta(group_id, cache=cache)
        return meta["result"] if meta else None

    def reload_group_result(self, group_id: str) -> None:
        """Read a group again."""
        self._cache[group_id] = self.get_group_meta(group_id, cache=False)

    def delete_group(self, group_id: str) -> Any:
        """Remove a group; the results of its tasks stay."""
        self._cache.pop(group_id, None)
        return self._ensure_retryable(self._delete_group, group_id)

    # For backends to define

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> Any:
        raise self._lacks("_store_result")

    def _get_task_meta_for(self, task_id: str) -> Any:
        raise self._lacks("_get_task_meta_for")

    def _forget(self, task_id: str) -> None:
        raise self._lacks("_forget")

    def _save_group(self, group_id: str, result: Any) -> Any:
        raise self._lacks("_save_group")

    def _restore_group(self, group_id: str) -> Any:
        raise self._lacks("_restore_group")

    def _delete_group(self, group_id: str) -> Any:
        raise self._lacks("_delete_group")

    def _lacks(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} does not implement {name}")

    def cleanup(self) -> None:
        """Remove expired results, in backends where they do not expire by themselves."""

    def close(self) -> None:
        """Close all connections. The next use reconnects."""

    def process_cleanup(self) -> None:
        """Called when a worker's process ends."""

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        """Called before a task is sent."""
        return {}

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """Do nothing: the engine keeps chords (`sidekiq_celery._workflow.flow`)."""

    def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> None:
        """A hook for custom backends that keep chords themselves."""

    def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """Do nothing: the engine keeps chords."""

    def fallback_chord_unlock(self, header_result: Any, body: Any, countdown: float = 1, **kwargs: Any) -> None:
        """Do nothing: the engine keeps chords."""

    def chord_error_from_stack(self, callback: Any, exc: BaseException | None = None) -> Any:
        """
        Mark the body *callback* as failed, for custom backends that keep chords themselves. The error is *exc*, or the
        exception being handled. Calls the body's errbacks, and returns the exception with its traceback.
        """
        task_id = callback.id or callback.options.setdefault("task_id", uuid())
        for errback in maybe_list(callback.options.get("link_error")) or ():
            self.app.signature(errback).apply_async((task_id,))
        return self.fail_from_current_stack(task_id, exc)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Do nothing: the engine keeps chords."""

    def ensure_chords_allowed(self) -> None:
        """A hook for custom backends: raise if chords are not supported."""

    def _ensure_not_eager(self) -> None:
        conf = self.app.conf
        if conf.task_always_eager and not conf.task_store_eager_result:
            warnings.warn(
                "Results are not stored in backend and should not be retrieved when task_always_eager is enabled, "
                "unless task_store_eager_result is enabled.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _pause(self, seconds: float) -> float:
        """Pause between two checks for a result. Returns the seconds that have passed, which may be fewer."""
        time.sleep(seconds)
        return seconds

    def __reduce__(self, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        return unpickle_backend, (type(self), args, {"url": self.url, **(kwargs or {})})
