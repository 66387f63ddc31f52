"""An event, and the exchange that events go through."""

import time
from collections.abc import Callable
from typing import Any

from kombu.entity import Exchange

__all__ = ("EVENT_EXCHANGE_NAME", "Event", "event_exchange", "get_exchange", "group_from")

EVENT_EXCHANGE_NAME = "celeryev"

event_exchange = Exchange(EVENT_EXCHANGE_NAME, type="topic")
"""The exchange for brokers that have topics; see `get_exchange`."""


def Event(
    type: str,
    _fields: Any = None,
    __dict__: Callable[..., dict[str, Any]] = dict,
    __now__: Callable[[], float] = time.time,
    **fields: Any,
) -> dict[str, Any]:
    """
    Make an event: a dict with `type`, `timestamp` (seconds since the epoch, by default now) and further fields.

    Args:
        type: `<group>-<what>`, as in `task-received`.
    """
    event = __dict__(_fields or {}, **fields)
    event.setdefault("timestamp", __now__())
    event["type"] = type
    return event


def group_from(type: str) -> str:
    """The group of an event type: `task` for `task-sent`."""
    return type.split("-", 1)[0]


def get_exchange(conn: Any, name: str = EVENT_EXCHANGE_NAME) -> Any:
    """The event exchange for a connection. On Redis it is of type fanout: each event reaches every listener."""
    kind = "fanout" if conn.transport.driver_type in ("redis", "gcpubsub") else "topic"
    return Exchange(name, type=kind)
