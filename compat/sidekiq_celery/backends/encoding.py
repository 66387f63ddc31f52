"""
Results to bytes and back, by kombu's registry of serializers.

What json alone can write is written without kombu, in the same bytes. As long as a program has not imported kombu's
registry, it is not imported to read json either: a client's first result would wait for that.
"""

import json
import sys
from functools import cached_property
from typing import Any

from sidekiq_celery._wire.json_values import beyond_json, encoder, from_plain
from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("COMPRESSED_PAYLOAD_MAGIC", "Codec", "as_bytes", "compress_payload", "decompress_payload")

COMPRESSED_PAYLOAD_MAGIC = b"\x00celery-compressed\x00"
"""What a compressed result begins with; then the kind of compression, a zero byte, and the text. As Celery's."""

_JSON = frozenset({"json", "application/json"})


def as_bytes(text: Any) -> bytes:
    """A text, or what is bytes already, as bytes."""
    return text.encode() if isinstance(text, str) else bytes(text)


def compress_payload(payload: str | bytes, compression: str) -> bytes:
    """*payload*, compressed by a method of kombu's, which the bytes name."""
    from kombu.compression import compress

    body, content_type = compress(payload, compression)
    return COMPRESSED_PAYLOAD_MAGIC + str(content_type).encode() + b"\x00" + bytes(body)


def decompress_payload(payload: Any) -> Any:
    """What `compress_payload` was given; anything else as it is."""
    if isinstance(payload, memoryview):
        payload = payload.tobytes()
    if not isinstance(payload, bytes | bytearray) or not payload.startswith(COMPRESSED_PAYLOAD_MAGIC):
        return payload
    from kombu.compression import decompress

    content_type, _, body = payload[len(COMPRESSED_PAYLOAD_MAGIC) :].partition(b"\x00")
    return decompress(bytes(body), content_type.decode())


class Codec:
    """
    One way to write results.

    Args:
        serializer: A name that kombu knows.
        accept: Names or content types that may be read; None for all.
        compression: A name that kombu knows, or None.

    Raises:
        ImproperlyConfigured: The compression is not known.
    """

    def __init__(self, serializer: str, accept: Any = None, compression: str | None = None) -> None:
        self.serializer = serializer
        self.compression = compression
        self._accept = None if accept is None else tuple(accept)
        if compression:
            _check_compression(compression)

    @cached_property
    def kombus(self) -> Any:
        """What kombu knows of the serializer: `content_type`, `content_encoding`, and `encoder`, without its errors."""
        from kombu.serialization import registry

        return registry._encoders[self.serializer]

    @cached_property
    def accept(self) -> Any:
        """The content types that may be read."""
        from kombu.serialization import prepare_accept_content

        return prepare_accept_content(self._accept)

    @property
    def is_plain_json(self) -> bool:
        """Texts begin with the first key of what was written."""
        return self.serializer == "json" and not self.compression

    def encode(self, data: Any) -> str | bytes:
        """
        *data* as it is stored.

        Raises:
            kombu.exceptions.EncodeError: It cannot be written.
        """
        payload = self.dumps(data)
        return compress_payload(payload, self.compression) if self.compression else payload

    def decode(self, payload: Any) -> Any:
        """
        What `encode` was given; None for None.

        Raises:
            kombu.exceptions.DecodeError, kombu.exceptions.ContentDisallowed: It cannot, or may not, be read.
        """
        if payload is None:
            return None
        if self._may_read_json:
            try:
                return from_plain(json.loads(payload if isinstance(payload, str) else payload.decode("utf-8")))
            except Exception:  # noqa: BLE001 - compressed; or kombu says what is wrong with it, in its own words
                pass
        from kombu.serialization import loads

        text, kind = decompress_payload(payload or str(payload)), self.kombus
        return loads(text, content_type=kind.content_type, content_encoding=kind.content_encoding, accept=self.accept)

    @property
    def _may_read_json(self) -> bool:
        """Results are json, and nobody can have told kombu otherwise."""
        if self.serializer != "json" or "kombu.serialization" in sys.modules:
            return False
        return self._accept is None or not _JSON.isdisjoint(self._accept)

    def dumps(self, data: Any) -> str | bytes:
        """*data* by its serializer, not compressed."""
        if self.serializer == "json" and _json_is_kombus():
            try:
                return _encode_json(data)
            except Exception:  # noqa: BLE001 - kombu says what is wrong with it, in its own words
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
    """Whether nobody has registered a json of their own."""
    registry = getattr(sys.modules.get("kombu.serialization"), "registry", None)
    known = None if registry is None else registry._encoders.get("json")
    if known is None:
        # Not imported, or another thread is in the midst of it.
        return True
    from kombu.utils.json import dumps

    return bool(known.encoder is dumps)


_encode_json = encoder(json.JSONEncoder(default=beyond_json))
