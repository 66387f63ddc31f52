"""
A message of kombu's to the fields of a job.

A message of Celery's, of either protocol, becomes what `sidekiq_celery` itself pushes for that call, if its body is
JSON; else the body goes along as it is. Any other message becomes a job of the class `kombu.Message` that nobody runs:
it is for consumers of kombu.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.message import TaskMessage
from sidekiq_celery._wire.payload import EMBEDDED, EMBEDS, KEY, sealed, task_headers_of_message

__all__ = ("FOREIGN_CLASS", "FOREIGN_KEY", "REDELIVERED", "item_of", "opaque_item_of", "redelivered")

FOREIGN_CLASS = "kombu.Message"
FOREIGN_KEY = "kombu"
"""Where the payload of a message that is no task holds the message."""
REDELIVERED = "redelivered"
"""The mark of a job that a consumer has handed back."""

Item = dict[str, Any]

# Made anew for each delivery, or with a meaning on the way alone.
_PASSING = frozenset({"body_encoding", "delivery_tag", "delivery_info"})
_PERSISTENT = 2


def item_of(message: Mapping[str, Any], body: Any, now: float) -> Item:
    """
    What to push for a message, but for its queue.

    Args:
        message: As kombu hands it to a transport.
        body: Its body, decoded: text or bytes.
        now: Seconds since the epoch.

    Raises:
        TypeError: A header is nothing that JSON can carry.
    """
    headers = message.get("headers") or {}
    if type(headers.get("task")) is str and type(headers.get("id")) is str:
        return _task_item(message, headers, _call_in(message, body), body, now)
    first = _first_protocol(message, body)
    if first is not None:
        headers, call = first
        return _task_item({**message, "headers": headers}, headers, call, body, now)
    return _foreign_item(message)


def redelivered(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload that a consumer has handed back, with the mark by which the next one knows."""
    key = FOREIGN_KEY if type(payload.get(FOREIGN_KEY)) is dict else KEY
    return {**payload, key: {**(payload.get(key) or {}), REDELIVERED: True}}


def opaque_item_of(message: Mapping[str, Any], body: Any, now: float) -> Item:
    """The same for a task whose body JSON can write in Python alone, such as NaN: it goes along as it is."""
    return _task_item(message, message["headers"], None, body, now)


Call = tuple[list[Any], dict[str, Any], dict[str, Any]]


def _task_item(
    message: Mapping[str, Any], headers: Mapping[str, Any], call: Call | None, body: Any, now: float
) -> Item:
    args, kwargs, embedded = call or ([], {}, {})
    told = {name: value for name, value in headers.items() if name != "compression"}
    task_headers = task_headers_of_message(
        TaskMessage(told, _lasting(message["properties"]), ((), {}, embedded), None), None
    )
    if headers.get("ignore_result") is not None:
        task_headers["ignore_result"] = bool(headers["ignore_result"])
    if call is None:
        task_headers |= _body(message, headers, body)
    elif kwargs:
        args, task_headers["kw"] = [*args, kwargs], True
    item: Item = {"class": headers["task"], "args": args, "jid": headers["id"], "retry": True}
    if task_headers:
        item[KEY] = task_headers
    at = _moment(headers.get("eta"))
    if at is not None and at > now:
        item["at"] = at
    return item


def _call_in(message: Mapping[str, Any], body: Any) -> Call | None:
    """Arguments and what the call sets off; None if the body is not JSON as Celery writes it."""
    read = _json(message, body)
    if type(read) is not list or len(read) != 3:
        return None
    args, kwargs, embedded = read
    # The marks of types that JSON lacks stay as they are: a worker of ours reads the same.
    if type(args) is not list or type(kwargs) is not dict or not isinstance(embedded, dict | None):
        return None
    return args, kwargs, embedded or {}


def _json(message: Mapping[str, Any], body: Any) -> Any:
    if message.get("content-type") != "application/json" or "compression" in (message.get("headers") or {}):
        return None
    try:
        return json.loads(body)
    except (ValueError, TypeError):
        return None


def _first_protocol(message: Mapping[str, Any], body: Any) -> tuple[dict[str, Any], Call] | None:
    """
    A message of Celery's first protocol as one of its second.

    Source: Celery 5.7.0, `worker/strategy.py`, `proto1_to_proto2`.
    """
    read = _json(message, body)
    if type(read) is not dict or type(read.get("task")) is not str or type(read.get("id")) is not str:
        return None
    args, kwargs = read.get("args") or [], read.get("kwargs") or {}
    if type(args) is not list or type(kwargs) is not dict:
        return None
    headers = {"lang": "py", **(message.get("headers") or {})}
    headers |= {name: read.get(name) for name in ("task", "id", "retries", "eta", "expires", "timelimit")}
    headers["group"] = read.get("taskset") or read.get("group")
    return headers, (args, kwargs, {name: read[name] for name in EMBEDDED if read.get(name)})


def _body(message: Mapping[str, Any], headers: Mapping[str, Any], body: Any) -> dict[str, Any]:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    task_headers = sealed(raw, message.get("content-type"), message.get("content-encoding"), headers.get("compression"))
    return {**task_headers, EMBEDS: True}


def _lasting(properties: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in properties.items() if name not in _PASSING}
    if kept.get("delivery_mode") in (None, _PERSISTENT, str(_PERSISTENT)):
        kept.pop("delivery_mode", None)
    place = properties.get("delivery_info") or {}
    if place.get("exchange"):
        kept["delivery_info"] = {"exchange": place["exchange"], "routing_key": place.get("routing_key")}
    return kept


def _moment(eta: Any) -> float | None:
    """Seconds since the epoch of an `eta`; None if there is none that can be read."""
    if not isinstance(eta, str):
        return None
    try:
        when = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


def _foreign_item(message: Mapping[str, Any]) -> Item:
    properties = {name: value for name, value in message["properties"].items() if name != "delivery_tag"}
    return {
        "class": FOREIGN_CLASS,
        "args": [],
        "jid": message["properties"]["delivery_tag"],
        "retry": True,
        FOREIGN_KEY: to_plain({**message, "properties": properties}),
    }
