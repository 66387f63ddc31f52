"""A Celery message as the broker stores it: headers, properties, and a body that has not been decoded."""

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any, NamedTuple

from amqp.exceptions import MessageNacked  # type: ignore[import-untyped]

from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import JsonParseError
from sidekiq_py.payloads import loads

TEXT_PROPERTIES = ("correlation_id", "reply_to", "message_id", "type", "app_id")
# Any others are the broker's or of one delivery; RabbitMQ refuses a user_id that is not the bridge's.
_PUBLISHED = ("priority", *TEXT_PROPERTIES)
# RabbitMQ accepts less than 2 ** 32.
_EXPIRATION_DIGITS = 9

JSON_TYPES = frozenset({"application/json", "application/x-json"})


class QueueFullError(ConnectionError):
    """The broker takes no message into a queue."""


class Envelope(NamedTuple):
    """
    A message.

    Args:
        body: As the producer has written it; compressed if there is a header `compression`.
    """

    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    body: bytes

    @classmethod
    def from_text(cls, text: bytes) -> "Envelope":
        """
        Read a message in the format of kombu's virtual transports: a JSON object.

        Raises:
            InvalidTaskError: The text is anything else.
        """
        found = read_json(text, "utf-8", "message")
        if not isinstance(found, dict):
            raise InvalidTaskError("the message is not a JSON object")
        headers, properties = found.get("headers") or {}, found.get("properties") or {}
        if not isinstance(headers, dict) or not isinstance(properties, dict):
            raise InvalidTaskError("the message's headers or properties are not a JSON object")
        body = body_bytes(found.get("body"), properties.get("body_encoding"))
        content_type = str(found.get("content-type") or "application/data")
        return cls(headers, properties, content_type, str(found.get("content-encoding") or "utf-8"), body)

    @property
    def is_open(self) -> bool:
        """True if the body is plain JSON, so that reading it runs no code and decompresses nothing."""
        return self.content_type in JSON_TYPES and not self.headers.get("compression")

    def as_text(self, queue: str) -> bytes:
        """The message in the format in which kombu's Redis transport stores it in *queue*."""
        properties = {
            **self.properties,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "body_encoding": "base64",
            "delivery_tag": uuid(),
        }
        whole = {
            "body": b64encode(self.body).decode(),
            "content-encoding": self.content_encoding,
            "content-type": self.content_type,
            "headers": self.headers,
            "properties": properties,
        }
        # AMQP has headers of types that JSON lacks; these come from the broker.
        return json.dumps(whole, default=repr).encode()

    def publish(self, producer: Any, queue: str) -> None:
        """
        Publish the message to *queue* with a kombu producer.

        Raises:
            QueueFullError: The broker has refused it, as RabbitMQ does if a queue is full.
        """
        try:
            producer.publish(
                self.body,
                routing_key=queue,
                exchange="",
                content_type=self.content_type,
                content_encoding=self.content_encoding,
                headers=self.headers,
                mandatory=True,
                delivery_mode=2,
                expiration=self._expiration_seconds(),
                **self.published_properties(),
            )
        except MessageNacked as error:
            raise QueueFullError(f"it takes no message into the queue {queue!r}, which may be full") from error

    def published_properties(self) -> dict[str, Any]:
        """Those of the properties that are published with the message."""
        return {name: value for name in _PUBLISHED if (value := self.properties.get(name)) is not None}

    def _expiration_seconds(self) -> float | None:
        """How long the broker keeps the message, as kombu is told; properties have it in milliseconds, as a text."""
        given = str(self.properties.get("expiration") or "")
        milliseconds = int(given) if given.isascii() and given.isdecimal() and len(given) <= _EXPIRATION_DIGITS else 0
        return milliseconds / 1000 or None


def read_json(text: bytes, encoding: str, what: str) -> Any:
    """
    Parse JSON, including what Python's encoder writes and Ruby does not read, such as NaN.

    Args:
        what: The name of the text, for the error message.

    Raises:
        InvalidTaskError: The text is not valid JSON.
    """
    with suppress(JsonParseError, RecursionError):
        return loads(text)
    try:
        return json.loads(text.decode(encoding))
    except (ValueError, LookupError, RecursionError) as error:
        raise InvalidTaskError(f"the {what} is not valid JSON: {error}") from error


def body_bytes(body: Any, encoding: Any = None) -> bytes:
    """
    The bytes of a body.

    Args:
        body: The body as kombu or amqp deliver it.
        encoding: `base64`, or nothing.

    Raises:
        InvalidTaskError: The body is neither text nor bytes, or not valid base64.
    """
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogateescape")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise InvalidTaskError(f"the message's body is {type(body).__name__}, where a text should stand")
    if encoding != "base64":
        return bytes(body)
    try:
        return b64decode(body, validate=True)
    except ValueError as error:
        raise InvalidTaskError(f"the message's body is not valid base64: {error}") from error
