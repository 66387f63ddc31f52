"""Results in their stored form, and back: the part of a backend that needs no place."""

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sidekiq_celery import _state, states
from sidekiq_celery.backends import failures
from sidekiq_celery.backends.encoding import Codec, as_bytes
from sidekiq_celery.contract import App

__all__ = ("Values",)


class Values:
    """What a backend does to results before they are stored, and after they were read."""

    READY_STATES = states.READY_STATES
    UNREADY_STATES = states.UNREADY_STATES
    EXCEPTION_STATES = states.EXCEPTION_STATES

    supports_result_compression = False
    persistent = True

    app: App
    serializer: str
    _codec: Codec

    def prepare_exception(self, exc: Any, serializer: str | None = None) -> Any:
        """What is stored of an exception."""
        return failures.as_plain(exc, serializer or self.serializer, self.encode)

    def exception_to_python(self, exc: Any) -> Any:
        """The exception of which *exc* is stored; nothing is imported for it."""
        return failures.as_exception(exc, self.serializer)

    def prepare_value(self, result: Any) -> Any:
        """What is stored of what a task returned: a result becomes a tuple."""
        if self.serializer != "pickle" and hasattr(result, "as_tuple") and hasattr(result, "parent"):
            return result.as_tuple()
        return result

    def encode_result(self, result: Any, state: str) -> Any:
        """What is stored of *result* in *state*."""
        if state in self.EXCEPTION_STATES and isinstance(result, BaseException):
            return self.prepare_exception(result)
        return self.prepare_value(result)

    def encode(self, data: Any) -> Any:
        """*data* as bytes or text."""
        return self._codec.encode(data)

    def _encode(self, data: Any) -> tuple[str, str, str | bytes]:
        """For backends of others: content type, encoding, and the text as it is before it is compressed."""
        return self.content_type, self.content_encoding, self._codec.dumps(data)

    def decode(self, payload: Any) -> Any:
        """What `encode` was given."""
        return self._codec.decode(payload)

    def meta_from_decoded(self, meta: Any) -> Any:
        """*meta* with the exception in place of what is stored of it; never one that ends a program."""
        if meta["status"] in self.EXCEPTION_STATES:
            meta["result"] = failures.without_exits(self.exception_to_python(meta["result"]))
        return meta

    def decode_result(self, payload: Any) -> Any:
        """What is stored of a task, from its bytes."""
        return self.meta_from_decoded(self.decode(payload))

    def current_task_children(self, request: Any = None) -> Any:
        """The results of the tasks that *request*, else the current task, has called, as tuples."""
        wanted = request or getattr(_state.get_current_task(), "request", None)
        return [child.as_tuple() for child in getattr(wanted, "children", ())] if wanted else None

    def _get_result_meta(
        self,
        result: Any,
        state: str,
        traceback: Any,
        request: Any,
        format_date: bool = True,
        encode: bool = False,
    ) -> dict[str, Any]:
        """
        What is stored.

        Args:
            result: In its stored form.
            format_date: The time as ISO 8601, with the app's time zone; else a datetime.
            encode: Arguments as bytes, for backends that have a field for them.
        """
        date_done: Any = self.app.now() if state in self.READY_STATES else None
        meta: dict[str, Any] = {
            "status": state,
            "result": result,
            "traceback": traceback,
            "children": self.current_task_children(request),
            "date_done": date_done.isoformat() if date_done is not None and format_date else date_done,
        }
        if not request:
            return meta
        group_id, parent_id = getattr(request, "group", None), getattr(request, "parent_id", None)
        if group_id:
            meta["group_id"] = group_id
        if parent_id:
            meta["parent_id"] = parent_id
        if self.app.conf["result_extended"]:
            fields = _of_the_call(request)
            if encode:
                fields |= {name: as_bytes(self.encode(fields[name])) for name in ("args", "kwargs")}
            meta |= fields
        return meta

    @property
    def content_type(self) -> str:
        """Of what is stored."""
        return self._codec.kombus.content_type  # type: ignore[no-any-return]

    @property
    def content_encoding(self) -> str:
        """Of what is stored."""
        return self._codec.kombus.content_encoding  # type: ignore[no-any-return]

    @property
    def encoder(self) -> Any:
        """kombu's."""
        return self._codec.kombus.encoder

    @property
    def accept(self) -> Any:
        """The content types that may be read."""
        return self._codec.accept

    @property
    def compression(self) -> str | None:
        """How results are compressed."""
        return self._codec.compression

    def prepare_compression(self, compression: str | None) -> str | None:
        """*compression*, or None where it cannot be had."""
        if compression and not self.supports_result_compression:
            warnings.warn(
                f"The {type(self).__name__} result backend does not support result_compression, so results are stored "
                "uncompressed",
                UserWarning,
                stacklevel=3,
            )
            return None
        return compression or None

    def prepare_expires(self, value: Any, type: Callable[[Any], Any] | None = None) -> Any:
        """*value*, else `result_expires`, in seconds."""
        if value is None:
            value = self.app.conf.result_expires
        if isinstance(value, timedelta):
            value = value.total_seconds()
        return type(value) if value is not None and type else value

    def prepare_persistent(self, enabled: bool | None = None) -> bool:
        """*enabled*, else `result_persistent`."""
        if enabled is not None:
            return enabled
        wanted = self.app.conf.result_persistent
        return self.persistent if wanted is None else bool(wanted)


def _of_the_call(request: Any) -> dict[str, Any]:
    delivery = getattr(request, "delivery_info", None)
    fields: dict[str, Any] = {
        "name": getattr(request, "task", None),
        "args": getattr(request, "args", None),
        "kwargs": getattr(request, "kwargs", None),
        "worker": getattr(request, "hostname", None),
        "retries": getattr(request, "retries", None),
        "queue": delivery.get("routing_key") if delivery else None,
    }
    stamps = getattr(request, "stamps", None)
    if stamps:
        wanted = request.stamped_headers
        fields["stamped_headers"] = wanted
        fields |= {key: value for key, value in stamps.items() if key in (wanted or ())}
    return fields
