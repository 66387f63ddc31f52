"""
Converts results to bytes and back, with the serializers in kombu's registry.

Whatever json can write on its own is written without kombu, in the same bytes. Until a program has imported kombu's
registry itself, reading json does not import it either, because a client's first result would have to wait for that.
"""

import json
import sys
from functools import cached_property
from typing import Any

from sidekiq_celery._wire.decompression import decompressed
from sidekiq_celery._wire.json_values import beyond_json, from_plain
from sidekiq_celery.exceptions import ImproperlyConfigured

COMPRESSED_PAYLOAD_MAGIC = b"\x00celery-compressed\x00"
"""The first bytes of a compressed result. The kind of compression, a zero byte and the text follow, as in Celery."""

_JSON = frozenset({"json", "application/json"})


def as_bytes(text: Any) -> bytes:
    """Encode a text; bytes stay as they are."""
    return text.encode() if isinstance(text, str) else bytes(text)


def compress_payload(payload: str | bytes, compression: str) -> bytes:
    """Compress *payload* with a method that kombu knows. The result names the method."""
    from kombu.compression import compress

    body, content_type = compress(payload, compression)
    return COMPRESSED_PAYLOAD_MAGIC + str(content_type).encode() + b"\x00" + bytes(body)


def decompress_payload(payload: Any, most_bytes: int = 0) -> Any:
    """
    Undo `compress_payload`; anything else is returned as it is.

    Args:
        most_bytes: The size from which on it is not decompressed; 0 for any.

    Raises:
        kombu.exceptions.DecodeError: The payload cannot be decompressed, or would be larger.
    """
    if isinstance(payload, memoryview):
        payload = payload.tobytes()
    if not isinstance(payload, bytes | bytearray) or not payload.startswith(COMPRESSED_PAYLOAD_MAGIC):
        return payload
    from kombu.exceptions import DecodeError

    content_type, _, body = payload[len(COMPRESSED_PAYLOAD_MAGIC) :].partition(b"\x00")
    try:
        found = decompressed(bytes(body), content_type.decode(), most_bytes)
    except Exception as error:  # each method raises its own
        raise DecodeError(f"it cannot be decompressed: {error!r}") from error
    if found is None:
        raise DecodeError(f"it has more than {most_bytes:,} bytes without its compression")
    return found


class Codec:
    """
    One way to write results.

    Args:
        serializer: A name that kombu knows.
        accept: Names or content types that may be read; None for all.
        compression: A name that kombu knows, or None.

    Raises:
        ImproperlyConfigured: kombu does not know the compression.
    """

    def __init__(self, serializer: str, accept: Any = None, compression: str | None = None) -> None:
        self.serializer = serializer
        self.compression = compression
        self._accept = None if accept is None else tuple(accept)
        if compression:
            _check_compression(compression)

    @cached_property
    def kombus(self) -> Any:
        """kombu's entry for the serializer: `content_type`, `content_encoding` and the raw `encoder`."""
        from kombu.serialization import registry

        return registry._encoders[self.serializer]

    @cached_property
    def accept(self) -> Any:
        """The content types that may be read."""
        from kombu.serialization import prepare_accept_content

        return prepare_accept_content(self._accept)

    @property
    def is_plain_json(self) -> bool:
        """True if stored texts are uncompressed json, and so begin with the first key that was written."""
        return self.serializer == "json" and not self.compression

    def encode(self, data: Any) -> str | bytes:
        """
        Encode *data* for storage.

        Raises:
            kombu.exceptions.EncodeError: *data* cannot be encoded.
        """
        payload = self.dumps(data)
        return compress_payload(payload, self.compression) if self.compression else payload

    def decode(self, payload: Any) -> Any:
        """
        Undo `encode`. Returns None for None.

        Raises:
            kombu.exceptions.DecodeError, kombu.exceptions.ContentDisallowed: The payload cannot, or may not, be read.
        """
        if payload is None:
            return None
        if self._may_read_json:
            try:
                return from_plain(json.loads(payload if isinstance(payload, str) else payload.decode("utf-8")))
            except Exception:  # noqa: BLE001 - it is compressed, or kombu raises its own error below
                pass
        from kombu.serialization import loads

        text, kind = decompress_payload(payload or str(payload)), self.kombus
        return loads(text, content_type=kind.content_type, content_encoding=kind.content_encoding, accept=self.accept)

    @property
    def _may_read_json(self) -> bool:
        """True if results are json and the program cannot have registered another json with kombu."""
        if self.serializer != "json" or "kombu.serialization" in sys.modules:
            return False
        return self._accept is None or not _JSON.isdisjoint(self._accept)

    def dumps(self, data: Any) -> str | bytes:
        """Serialize *data* without compressing it."""
        if self.serializer == "json" and _json_is_kombus():
            try:
                return _encode_json(data)
            except Exception:  # noqa: BLE001 - kombu raises its own error below
                pass
        from kombu.serialization import dumps

        payload: str | bytes = dumps(data, serializer=self.serializer)[2]
        return payload


def _check_compression(name: str) -> None:
    from kombu.compression import encoders, get_encoder

    try:
        get_encoder(name)
    except KeyError as error:
        raise ImproperlyConfigured(
            f"Unknown compression method {name!r} configured in result_compression. Available methods are: "
            f"{', '.join(sorted(encoders()))}."
        ) from error


def _json_is_kombus() -> bool:
    """True unless the program has registered a json serializer of its own."""
    registry = getattr(sys.modules.get("kombu.serialization"), "registry", None)
    known = None if registry is None else registry._encoders.get("json")
    if known is None:
        # kombu is not imported yet, or another thread is importing it.
        return True
    from kombu.utils.json import dumps

    return bool(known.encoder is dumps)


_encode_json = json.JSONEncoder(default=beyond_json).encode
