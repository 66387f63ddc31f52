"""
Converts a kombu message to the fields of a job.

A Celery message, in either protocol, becomes what `sidekiq_celery` itself would push for that call if its body is JSON;
otherwise the body is stored as it is. Any other message becomes a job of the class `kombu.Message`. Workers do not run
it: it is for kombu's consumers.
"""

import json
from collections.abc import Mapping
from typing import Any

from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.message import TaskMessage, aware
from sidekiq_celery._wire.payload import EMBEDDED, EMBEDS, KEY, sealed, task_headers_of_message

FOREIGN_CLASS = "kombu.Message"
FOREIGN_KEY = "kombu"
"""The payload key that holds a message which is not a task."""
REDELIVERED = "redelivered"
"""Marks a job that a consumer has requeued."""

Item = dict[str, Any]

# Created anew for each delivery, or only meaningful in transit.
_PASSING = frozenset({"body_encoding", "delivery_tag", "delivery_info"})
_PERSISTENT = 2
_OF_PROTOCOL_1 = ("task", "id", "retries", "eta", "expires", "timelimit", "group_index")


def item_of(message: Mapping[str, Any], body: Any, now: float) -> Item:
    """
    Build the job to push for a message, without its queue.

    Args:
        message: As kombu passes it to a transport.
        body: The decoded body: text or bytes.
        now: Seconds since the epoch.

    Raises:
        TypeError: JSON cannot carry a header.
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
    """Mark the payload of a job that a consumer requeued, so that the next consumer knows."""
    key = FOREIGN_KEY if type(payload.get(FOREIGN_KEY)) is dict else KEY
    return {**payload, key: {**(payload.get(key) or {}), REDELIVERED: True}}


def opaque_item_of(message: Mapping[str, Any], body: Any, now: float) -> Item:
    """Build the job for a task whose body only Python's JSON can write, such as NaN. The body is stored as it is."""
    return _task_item(message, message["headers"], None, body, now)


Call = tuple[list[Any], dict[str, Any], dict[str, Any]]


def _task_item(
    message: Mapping[str, Any], headers: Mapping[str, Any], call: Call | None, body: Any, now: float
) -> Item:
    args, kwargs, embedded = call or ([], {}, {})
    kept_headers = {name: value for name, value in headers.items() if name != "compression"}
    task_headers = task_headers_of_message(
        TaskMessage(kept_headers, _lasting(message["properties"]), ((), {}, embedded), None), None
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
    """The arguments and embedded fields of a call. None if the body is not JSON as Celery writes it."""
    read = _json(message, body)
    if type(read) is not list or len(read) != 3:
        return None
    args, kwargs, embedded = read
    # Type marks for values that JSON lacks stay as they are: our workers read the same marks.
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
    Convert a message of Celery's first protocol to the second.

    Source: Celery 5.7.0, `worker/strategy.py`, `proto1_to_proto2`.
    """
    read = _json(message, body)
    if type(read) is not dict or type(read.get("task")) is not str or type(read.get("id")) is not str:
        return None
    args, kwargs = read.get("args") or [], read.get("kwargs") or {}
    if type(args) is not list or type(kwargs) is not dict:
        return None
    headers = {"lang": "py", **(message.get("headers") or {})}
    headers |= {name: read.get(name) for name in _OF_PROTOCOL_1}
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
    """An `eta` as seconds since the epoch. None if it is missing or unreadable."""
    if not isinstance(eta, str):
        return None
    try:
        return aware(eta).timestamp()
    except ValueError:
        return None


def _foreign_item(message: Mapping[str, Any]) -> Item:
    properties = {name: value for name, value in message["properties"].items() if name != "delivery_tag"}
    return {
        "class": FOREIGN_CLASS,
        "args": [],
        "jid": message["properties"]["delivery_tag"],
        "retry": True,
        FOREIGN_KEY: to_plain({**message, "properties": properties}),
    }
