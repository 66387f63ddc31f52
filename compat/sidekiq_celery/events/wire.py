"""
How an event goes over Redis: the message and the channel, as kombu's Redis transport publishes them.

Source: kombu 5.7.0, `transport/virtual/base.py` and `transport/redis.py`; what a worker of Celery 5.7.0 sends.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import orjson

from sidekiq_celery.contract import App


def message(events: Any, serializer: str, hostname: str, exchange: str, routing_key: str) -> bytes:
    """
    Build the text to publish.

    Args:
        events: One event, or a list of them.
        serializer: kombu's name of the serializer.
        hostname: The sender's name.

    Raises:
        kombu.exceptions.EncodeError: The serializer cannot write a value.
    """
    content_type, encoding, body = _encoded(events, serializer)
    return json.dumps(
        {
            "body": b64encode(body).decode("ascii"),
            "content-encoding": encoding,
            "content-type": content_type,
            "headers": {"hostname": hostname},
            "properties": {
                "delivery_mode": 1,
                "delivery_info": {"exchange": exchange, "routing_key": routing_key},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    ).encode()


def channels(app: App, url: str) -> Callable[[str], str]:
    """
    Return a function that names the channel of a routing key: `/0.celeryev/task.multi`.

    Args:
        url: The broker's URL, as the engine has it.
    """
    options = app.conf.broker_transport_options or {}
    prefix = options.get("fanout_prefix", True)
    place = ("/{db}." if prefix is True else str(prefix or "")).format(db=_database(url))
    name = f"{options.get('global_keyprefix') or ''}{place}{app.conf.event_exchange}"
    if not options.get("fanout_patterns", True):
        return lambda routing_key: name
    return lambda routing_key: f"{name}/{routing_key}"


def _encoded(events: Any, serializer: str) -> tuple[str, str, bytes]:
    if serializer == "json":
        try:
            # orjson is faster and writes the same, except for values that kombu marks with their type.
            return "application/json", "utf-8", orjson.dumps(events, option=orjson.OPT_PASSTHROUGH_DATETIME)
        except TypeError:
            pass
    from kombu.serialization import dumps

    content_type, encoding, text = dumps(events, serializer)
    return content_type, encoding, text.encode() if isinstance(text, str) else text


def _database(url: str) -> str:
    """The number of the database in a URL."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parse_qs(parts.query).get("db", ["0"])[-1]
    return parts.path.strip("/").rpartition("/")[2] or "0"
