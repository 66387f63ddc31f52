"""Converts results to their stored form and back. This part of a backend does not depend on where results are kept."""

import warnings
from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any

from sidekiq_celery import _state, states
from sidekiq_celery.backends import failures
from sidekiq_celery.backends.encoding import Codec, as_bytes
from sidekiq_celery.contract import App


class Values:
    """What a backend does to results before storing and after reading them."""

    READY_STATES = states.READY_STATES
    UNREADY_STATES = states.UNREADY_STATES
    EXCEPTION_STATES = states.EXCEPTION_STATES

    supports_result_compression = False
    persistent = True

    app: App
    serializer: str
    _codec: Codec

    def prepare_exception(self, exc: Any, serializer: str | None = None) -> Any:
        """Convert an exception for storage."""
        return failures.as_plain(exc, serializer or self.serializer, self.encode)

    def exception_to_python(self, exc: Any) -> Any:
        """Rebuild a stored exception. Nothing is imported for it."""
        return failures.as_exception(exc, self.serializer)

    def prepare_value(self, result: Any) -> Any:
        """Convert a task's return value for storage: a result handle becomes a tuple."""
        if self.serializer != "pickle" and hasattr(result, "as_tuple") and hasattr(result, "parent"):
            return result.as_tuple()
        return result

    def encode_result(self, result: Any, state: str) -> Any:
        """Convert *result* for storage in *state*."""
        if state in self.EXCEPTION_STATES and isinstance(result, BaseException):
            return self.prepare_exception(result)
        return self.prepare_value(result)

    def encode(self, data: Any) -> Any:
        """Encode *data* as bytes or text."""
        return self._codec.encode(data)

    def _encode(self, data: Any) -> tuple[str, str, str | bytes]:
        """For third-party backends: content type, encoding, and the text before compression."""
        return self.content_type, self.content_encoding, self._codec.dumps(data)

    def decode(self, payload: Any) -> Any:
        """Undo `encode`."""
        return self._codec.decode(payload)

    def meta_from_decoded(self, meta: Any) -> Any:
        """Return *meta* with its stored exception rebuilt, but never one that would end the program."""
        if meta["status"] in self.EXCEPTION_STATES:
            meta["result"] = failures.without_exits(self.exception_to_python(meta["result"]))
        return meta

    def decode_result(self, payload: Any) -> Any:
        """Decode everything that is stored of a task."""
        return self.meta_from_decoded(self.decode(payload))

    def current_task_children(self, request: Any = None) -> Any:
        """The results of the tasks that *request*, or else the current task, has called, as tuples."""
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
        Build what is stored for a result.

        Args:
            result: In its stored form.
            format_date: True for the time as ISO 8601 in the app's time zone; False for a datetime.
            encode: True to encode arguments as bytes, for backends that have fields for them.
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

    content_type = property(attrgetter("_codec.kombus.content_type"), doc="The content type of stored results.")
    content_encoding = property(attrgetter("_codec.kombus.content_encoding"), doc="Their content encoding.")
    encoder = property(attrgetter("_codec.kombus.encoder"), doc="kombu's encoder.")
    accept = property(attrgetter("_codec.accept"), doc="The content types that may be read.")
    compression = property(attrgetter("_codec.compression"), doc="How results are compressed.")

    def prepare_compression(self, compression: str | None) -> str | None:
        """Return *compression*, or None if the backend does not support it."""
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
        """Return *value*, by default `result_expires`, in seconds."""
        if value is None:
            value = self.app.conf.result_expires
        if isinstance(value, timedelta):
            value = value.total_seconds()
        return type(value) if value is not None and type else value

    def prepare_persistent(self, enabled: bool | None = None) -> bool:
        """Return *enabled*, by default `result_persistent`."""
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
