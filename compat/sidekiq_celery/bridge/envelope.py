"""A message of Celery's as the broker has it: headers, properties, and a body that nobody has opened."""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import JsonParseError
from sidekiq_py.payloads import loads

__all__ = ("JSON_TYPES", "Envelope", "body_bytes", "read_json")

JSON_TYPES = frozenset({"application/json", "application/x-json"})


@dataclass(frozen=True, slots=True)
class Envelope:
    """
    A message.

    Args:
        body: As the producer has written it, compressed if the header `compression` says so.
    """

    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    body: bytes

    @classmethod
    def from_text(cls, text: bytes) -> "Envelope":
        """
        A message as kombu's virtual transports keep it: a JSON object.

        Raises:
            InvalidTaskError: It is something else.
        """
        found = read_json(text, "utf-8", "message")
        if not isinstance(found, dict):
            raise InvalidTaskError("the message is no JSON object")
        headers, properties = found.get("headers") or {}, found.get("properties") or {}
        if not isinstance(headers, dict) or not isinstance(properties, dict):
            raise InvalidTaskError("the message's headers or properties are no JSON object")
        body = body_bytes(found.get("body"), properties.get("body_encoding"))
        content_type = str(found.get("content-type") or "application/data")
        return cls(headers, properties, content_type, str(found.get("content-encoding") or "utf-8"), body)

    @property
    def is_open(self) -> bool:
        """The body is plain JSON: reading it runs nothing, and unfolds nothing."""
        return self.content_type in JSON_TYPES and not self.headers.get("compression")

    def as_text(self, queue: str) -> bytes:
        """The message as kombu's Redis transport keeps it in *queue*."""
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
        # AMQP has headers of types that JSON lacks; they are the broker's.
        return json.dumps(whole, default=repr).encode()

    def publish(self, producer: Any, queue: str, **options: Any) -> None:
        """Publish the message to *queue* by a producer of kombu."""
        producer.publish(
            self.body,
            routing_key=queue,
            exchange="",
            content_type=self.content_type,
            content_encoding=self.content_encoding,
            headers=self.headers,
            mandatory=True,
            **self.properties,
            **options,
        )


def read_json(text: bytes, encoding: str, what: str) -> Any:
    """
    JSON, also with what Python's has beyond Ruby's, such as NaN.

    Args:
        what: The name of the text, for the error.

    Raises:
        InvalidTaskError: It is none.
    """
    try:
        return loads(text)
    except (JsonParseError, RecursionError):
        pass
    try:
        return json.loads(text.decode(encoding))
    except (ValueError, LookupError, RecursionError) as error:
        raise InvalidTaskError(f"the {what} is no JSON: {error}") from error


def body_bytes(body: Any, encoding: Any = None) -> bytes:
    """
    The bytes of a body.

    Args:
        body: As kombu or amqp hand it over.
        encoding: `base64`, or nothing.

    Raises:
        InvalidTaskError: It is neither text nor bytes, or no base64.
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
        raise InvalidTaskError(f"the message's body is no base64: {error}") from error
