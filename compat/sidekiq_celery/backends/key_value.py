"""Base class for backends that store a text under a key: `BaseKeyValueStoreBackend`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sidekiq_celery import states
from sidekiq_celery.backends.encoding import as_bytes
from sidekiq_celery.backends.interface import Backend
from sidekiq_celery.backends.polling import SyncBackendMixin
from sidekiq_celery.exceptions import BackendStoreError, TimeoutError


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class BaseKeyValueStoreBackend(Backend):
    """
    Stores results under keys. A subclass defines `get`, `set` and `delete`, and may define `mget` and `expire`.

    A task that has succeeded stays that way: later results for the same id are not stored.
    """

    key_t: Callable[[Any], Any] = staticmethod(as_bytes)
    task_keyprefix: Any = "celery-task-meta-"
    group_keyprefix: Any = "celery-taskset-meta-"
    chord_keyprefix: Any = "chord-unlock-"
    implements_incr = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._add_global_keyprefix()
        self._encode_prefixes()

    def _add_global_keyprefix(self) -> None:
        own = (self.app.conf.result_backend_transport_options or {}).get("global_keyprefix") or ""
        if own and own[-1] not in ":_-.":
            own += "_"
        for name in ("task_keyprefix", "group_keyprefix", "chord_keyprefix"):
            setattr(self, name, f"{own}{getattr(self, name)}")

    def _encode_prefixes(self) -> None:
        for name in ("task_keyprefix", "group_keyprefix", "chord_keyprefix"):
            setattr(self, name, self.key_t(getattr(self, name)))

    def get(self, key: Any) -> Any:
        """Return the text under *key*, or None."""
        raise NotImplementedError("Must implement the get method.")

    def mget(self, keys: Any) -> Any:
        """Return the texts under *keys*, as a list in the same order or as a mapping."""
        raise NotImplementedError("Does not support get_many")

    def set(self, key: Any, value: Any) -> Any:
        """Store *value* under *key*."""
        raise NotImplementedError("Must implement the set method.")

    def delete(self, key: Any) -> Any:
        """Remove *key*."""
        raise NotImplementedError("Must implement the delete method")

    def incr(self, key: Any) -> Any:
        """Increment a counter. Nothing here calls it."""
        raise NotImplementedError("Does not implement incr")

    def expire(self, key: Any, value: Any) -> Any:
        """Let *key* expire in *value* seconds."""

    def _set_with_state(self, key: Any, value: Any, state: str) -> Any:
        return self.set(key, value)

    def get_key_for_task(self, task_id: Any, key: Any = "") -> Any:
        """The key of a task's result."""
        return self._key_of("task_id", self.task_keyprefix, task_id, key)

    def get_key_for_group(self, group_id: Any, key: Any = "") -> Any:
        """The key of a group."""
        return self._key_of("group_id", self.group_keyprefix, group_id, key)

    def get_key_for_chord(self, group_id: Any, key: Any = "") -> Any:
        """The key of a chord's counter, in backends that count."""
        return self._key_of("group_id", self.chord_keyprefix, group_id, key)

    def _key_of(self, name: str, prefix: Any, id: Any, key: Any) -> Any:
        if not id:
            raise ValueError(f"{name} must not be empty. Got {id} instead.")
        # A jid of another program may be a number, and bytes(number) is as long as the number says.
        return prefix + self.key_t(id if isinstance(id, str | bytes) else str(id)) + self.key_t(key)

    def _strip_prefix(self, key: Any) -> str:
        name = self.key_t(key)
        for prefix in (self.task_keyprefix, self.group_keyprefix):
            if name.startswith(prefix):
                return _as_text(name[len(prefix) :])
        return _as_text(name)

    def _filter_ready(
        self, values: Any, READY_STATES: Any = states.READY_STATES
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        for key, value in values:
            if value is not None:
                meta = self.decode_result(value)
                if meta["status"] in READY_STATES:
                    yield key, meta

    def _mget_to_results(self, values: Any, keys: Any, READY_STATES: Any = states.READY_STATES) -> dict[str, Any]:
        if isinstance(values, Mapping):
            return {self._strip_prefix(key): meta for key, meta in self._filter_ready(values.items(), READY_STATES)}
        return {_as_text(keys[at]): meta for at, meta in self._filter_ready(enumerate(values), READY_STATES)}

    def get_many(
        self,
        task_ids: Any,
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Any = None,
        on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
        READY_STATES: Any = states.READY_STATES,
    ) -> Iterator[tuple[str, Any]]:
        """
        Yield the results of *task_ids* as they arrive, each with its id.

        Raises:
            TimeoutError: Some results did not arrive in time.
        """
        interval = 0.5 if interval is None else interval
        waiting = set(task_ids)
        for task_id in [each for each in waiting if each in self._cache]:
            if self._cache[task_id]["status"] in READY_STATES:
                waiting.discard(task_id)
                yield _as_text(task_id), self._cache[task_id]
        rounds, elapsed = 0, 0.0
        while waiting:
            ids = list(waiting)
            found = self._mget_to_results(self.mget([self.get_key_for_task(each) for each in ids]), ids, READY_STATES)
            # As in `get_task_meta`, only successes are cached: a failed task may run again.
            self._cache.update({each: meta for each, meta in found.items() if meta["status"] == states.SUCCESS})
            waiting.difference_update(found)
            for task_id, meta in found.items():
                if on_message is not None:
                    on_message(meta)
                yield task_id, meta
            rounds += 1
            if not waiting or (max_iterations and rounds >= max_iterations):
                return
            if timeout is not None and elapsed >= timeout:
                raise TimeoutError(f"Operation timed out ({timeout})")
            if on_interval:
                on_interval()
            pause = interval if timeout is None else min(interval, timeout - elapsed)
            elapsed += self._pause(pause)

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> Any:
        value = self._value_of(task_id, result, state, traceback, request)
        try:
            self._store_value(task_id, value, state)
        except BackendStoreError as error:
            raise BackendStoreError(str(error), state=state, task_id=task_id) from error
        return result

    def _store_value(self, task_id: str, value: Any, state: str) -> None:
        if self._get_task_meta_for(task_id)["status"] != states.SUCCESS:
            self._set_with_state(self.get_key_for_task(task_id), value, state)

    def _value_of(self, task_id: str, result: Any, state: str, traceback: Any, request: Any) -> Any:
        """Encode what is stored under a task's key."""
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = _as_text(task_id)
        return self.encode(meta)

    def _get_task_meta_for(self, task_id: str) -> Any:
        value = self.get(self.get_key_for_task(task_id))
        return self.decode_result(value) if value else {"status": states.PENDING, "result": None}

    def task_result_exists(self, task_id: str) -> bool:
        """True if anything is stored of the task, whatever its state."""
        return bool(self.get(self.get_key_for_task(task_id)))

    def _forget(self, task_id: str) -> None:
        self.delete(self.get_key_for_task(task_id))

    def _save_group(self, group_id: str, result: Any) -> Any:
        self._set_with_state(
            self.get_key_for_group(group_id), self.encode({"result": result.as_tuple()}), states.SUCCESS
        )
        return result

    def _restore_group(self, group_id: str) -> Any:
        value = self.get(self.get_key_for_group(group_id))
        if not value:
            return None
        from sidekiq_celery.result import result_from_tuple

        meta = self.decode(value)
        meta["result"] = result_from_tuple(meta["result"], self.app)
        return meta

    def _delete_group(self, group_id: str) -> Any:
        self.delete(self.get_key_for_group(group_id))


class KeyValueStoreBackend(BaseKeyValueStoreBackend, SyncBackendMixin):
    """A key-value backend that waits for results by polling."""
