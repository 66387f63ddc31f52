"""
Converts a payload to a kombu message. Whoever enqueued it, a consumer sees a message of Celery's second protocol.

The class is the task's name, and the jid its id. What a real Celery client has sent comes back unchanged. For a job
that `sidekiq_celery` has sent, the rest of its chain is read from Redis.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from sidekiq_celery._send.flow_store import flow_key
from sidekiq_celery._send.header_checks import sorted_out
from sidekiq_celery._wire.chord_part import is_part
from sidekiq_celery._wire.json_values import from_plain, with_bare_floats
from sidekiq_celery._wire.message import shown
from sidekiq_celery._wire.payload import EMBEDDED, SAME_NAME, task_headers_of
from sidekiq_celery.transport.outgoing import FOREIGN_KEY, REDELIVERED
from sidekiq_py.errors import PayloadError
from sidekiq_py.payloads import args_of

Message = dict[str, Any]
ReadField = Callable[[str, str], bytes | None]
"""Reads a field of a hash in Redis."""

# Content types that are harmless to decode, because they produce nothing but data.
_HARMLESS = frozenset({"application/json", "application/x-yaml", "application/x-msgpack"})


def message_of(payload: Mapping[str, Any], queue: str, read_field: ReadField) -> Message:
    """
    Build the message that a consumer of *queue* receives for a payload, without the delivery tag.

    Args:
        queue: The name that kombu uses, without a priority step.

    Raises:
        InvalidTaskError: Its `celery` object is malformed.
        PayloadError: The payload cannot be converted.
    """
    foreign = payload.get(FOREIGN_KEY)
    if type(foreign) is dict and type(foreign.get("properties")) is dict:
        message: Message = {"headers": {}, **from_plain(foreign)}
        if type(message["headers"]) is not dict:
            raise PayloadError(f"kombu.headers is {message['headers']!r}, where an object should stand")
        place = message["properties"].setdefault("delivery_info", {"exchange": "", "routing_key": queue})
        place[REDELIVERED] = bool(message.pop(REDELIVERED, False))
        return message
    # Celery's workers trust their clients, so a value of a wrong type would end one each time.
    task_headers, refusal = sorted_out(task_headers_of(payload))
    if refusal is not None:
        raise refusal
    task_id = payload.get("jid")
    if type(task_id) is not str or not task_id:
        raise PayloadError(f"the job's jid is {task_id!r}, where a task's id should stand")
    message = {
        "headers": _headers(payload, task_headers, task_id),
        "properties": _properties(task_headers, task_id, queue),
    }
    message |= _body(payload, task_headers, read_field)
    if "compression" in task_headers:
        message["headers"]["compression"] = task_headers["compression"]
    if not message["headers"]["argsrepr"] and "body" not in task_headers:
        message["headers"] |= _texts(*_arguments(payload, task_headers))
    return message


def _headers(payload: Mapping[str, Any], task_headers: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    own = from_plain(task_headers.get("headers") or {})
    return {
        **own,
        "lang": "py",
        "task": payload["class"],
        "id": task_id,
        **{name: from_plain(task_headers.get(name)) for name in SAME_NAME},
        "retries": task_headers.get("retries") or 0,
        "timelimit": task_headers.get("timelimit") or [None, None],
        "root_id": from_plain(task_headers.get("root_id")) or task_id,
        "origin": task_headers.get("origin") or "sidekiq",
        "ignore_result": task_headers.get("ignore_result"),
        "replaced_task_nesting": task_headers.get("replaced_task_nesting") or 0,
        "stamps": from_plain(task_headers.get("stamps") or {}),
    }


def _properties(task_headers: Mapping[str, Any], task_id: str, queue: str) -> dict[str, Any]:
    properties = dict(from_plain(task_headers.get("properties") or {}))
    place = properties.get("delivery_info") or {"exchange": "", "routing_key": queue}
    priority = task_headers.get("priority") or 0
    return {
        "correlation_id": from_plain(task_headers.get("correlation_id")) or task_id,
        "reply_to": task_headers.get("reply_to") or "",
        "delivery_mode": 2,
        "priority": priority,
        **properties,
        "delivery_info": {**place, "priority": priority, REDELIVERED: bool(task_headers.get(REDELIVERED))},
    }


def _body(payload: Mapping[str, Any], task_headers: Mapping[str, Any], read_field: ReadField) -> Message:
    embedded = _embedded(task_headers, read_field)
    if "body" not in task_headers:
        body = json.dumps([*_arguments(payload, task_headers), embedded]).encode()
        return {"body": body, "content-type": "application/json", "content-encoding": "utf-8"}
    raw = b64decode(task_headers["body"], validate=True)
    if any(embedded.values()):
        raw = _with_embedded(raw, task_headers, embedded)
    return {
        "body": raw,
        "content-type": task_headers.get("content_type"),
        "content-encoding": task_headers.get("content_encoding"),
    }


def _arguments(payload: Mapping[str, Any], task_headers: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as Celery's json has them. Values that JSON lacks keep their type marks."""
    args = with_bare_floats(args_of(payload))
    if not task_headers.get("kw"):
        return args, {}
    if not args or type(args[-1]) is not dict:
        raise PayloadError(f"celery.kw says that keyword arguments come last, and args is {args!r}")
    return args[:-1], args[-1]


def _embedded(task_headers: Mapping[str, Any], read_field: ReadField) -> dict[str, Any]:
    embedded = {name: task_headers.get(name) for name in EMBEDDED}
    if is_part(embedded["chord"]):
        raise PayloadError(
            "it is a part of a chord that sidekiq_celery has sent, and only its workers can finish it: run it with "
            "`sidekiq-celery worker`"
        )
    if task_headers.get("flow"):
        embedded["chain"] = _steps(task_headers["flow"], read_field)
    return embedded


def _steps(place: Any, read_field: ReadField) -> list[Any]:
    """Read the rest of a chain from Redis. The next step comes last."""
    steps: list[Any] = []
    while place:
        text = read_field(flow_key(place["id"]), place["next"])
        if text is None:
            break
        step = json.loads(text)
        steps.append(step["s"])
        place = step["n"]
    return steps[::-1]


def _with_embedded(raw: bytes, task_headers: Mapping[str, Any], embedded: Mapping[str, Any]) -> bytes:
    """Add embedded fields to a body in a serializer other than JSON."""
    from kombu import serialization
    from kombu.compression import compress, decompress

    kind, encoding, compression = (
        task_headers.get("content_type"),
        task_headers.get("content_encoding"),
        task_headers.get("compression"),
    )
    if kind not in _HARMLESS:
        raise PayloadError(
            f"callbacks and steps of a {kind} call of sidekiq_celery are for its own workers: send it as json"
        )
    body = serialization.loads(decompress(raw, compression) if compression else raw, kind, encoding, accept=_HARMLESS)
    _, _, text = serialization.dumps((body[0], body[1], dict(embedded)), serialization.registry.type_to_name[kind])
    again: bytes = text.encode() if isinstance(text, str) else text
    return compress(again, compression)[0] if compression else again


def _texts(args: Any, kwargs: Any) -> dict[str, str]:
    """The texts that a worker's log and monitors show for the arguments. Ruby does not send them."""
    return {"argsrepr": shown(tuple(args)), "kwargsrepr": shown(kwargs)}
