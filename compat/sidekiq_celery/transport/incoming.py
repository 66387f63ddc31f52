"""
A payload to a message of kombu's: whoever has enqueued it, a consumer sees a message of Celery's second protocol.

The class is the task's name, the jid its id. What a real Celery client has sent comes back as it was; of a job that
`sidekiq_celery` has sent, the rest of a chain is read from where it is kept.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from sidekiq_celery._send.flow_store import flow_key
from sidekiq_celery._wire.json_values import from_plain, with_bare_floats
from sidekiq_celery._wire.message import shown
from sidekiq_celery._wire.payload import EMBEDDED, marks_of
from sidekiq_celery.transport.outgoing import FOREIGN_KEY, REDELIVERED
from sidekiq_py.errors import PayloadError
from sidekiq_py.payloads import args_of

__all__ = ("message_of",)

Message = dict[str, Any]
ReadField = Callable[[str, str], bytes | None]
"""A field of a hash in Redis."""

_HEADERS = (
    "shadow", "eta", "expires", "group", "group_index", "parent_id", "argsrepr", "kwargsrepr", "stamped_headers",
)  # fmt: skip
_KINDS: dict[str, type] = {
    **dict.fromkeys(("retries", "priority", "group_index", "replaced_task_nesting"), int),
    **dict.fromkeys(("eta", "expires", "root_id", "parent_id", "group", "reply_to", "correlation_id", "shadow"), str),
    **dict.fromkeys(("argsrepr", "kwargsrepr", "origin", "content_type", "content_encoding", "compression"), str),
    **dict.fromkeys(("headers", "properties", "stamps"), dict),
    **dict.fromkeys(("timelimit", "stamped_headers", "callbacks", "errbacks", "chain"), list),
}
# What reading cannot do harm with, as it makes nothing but data.
_HARMLESS = frozenset({"application/json", "application/x-yaml", "application/x-msgpack"})


def message_of(payload: Mapping[str, Any], queue: str, read_field: ReadField) -> Message:
    """
    The message that a consumer of *queue* gets for a payload, but for its delivery tag.

    Args:
        queue: As kombu knows it, without a priority's step.

    Raises:
        PayloadError: It cannot be made a message.
    """
    foreign = payload.get(FOREIGN_KEY)
    if type(foreign) is dict and type(foreign.get("properties")) is dict:
        message: Message = {"headers": {}, **from_plain(foreign)}
        if type(message["headers"]) is not dict:
            raise PayloadError(f"kombu.headers is {message['headers']!r}, where an object should stand")
        place = message["properties"].setdefault("delivery_info", {"exchange": "", "routing_key": queue})
        place[REDELIVERED] = bool(message.pop(REDELIVERED, False))
        return message
    marks = marks_of(payload)
    _check(marks)
    task_id = payload.get("jid")
    if type(task_id) is not str or not task_id:
        raise PayloadError(f"the job's jid is {task_id!r}, where a task's id should stand")
    message = {"headers": _headers(payload, marks, task_id), "properties": _properties(marks, task_id, queue)}
    message |= _body(payload, marks, read_field)
    if "compression" in marks:
        message["headers"]["compression"] = marks["compression"]
    if not message["headers"]["argsrepr"] and "body" not in marks:
        message["headers"] |= _texts(*_arguments(payload, marks))
    return message


def _check(marks: Mapping[str, Any]) -> None:
    """
    A worker of Celery's trusts its clients: a value of another type would end it, again and again.

    Raises:
        PayloadError: One is.
    """
    for name, kind in _KINDS.items():
        value = marks.get(name)
        if value is not None and type(value) is not kind:
            raise PayloadError(f"celery.{name} is {value!r}, which is no {kind.__name__}")
    limits = marks.get("timelimit")
    if limits is not None and not (len(limits) == 2 and all(isinstance(each, int | float | None) for each in limits)):
        raise PayloadError(f"celery.timelimit is {limits!r}, where two numbers should stand")


def _headers(payload: Mapping[str, Any], marks: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    own = from_plain(marks.get("headers") or {})
    return {
        **own,
        "lang": "py",
        "task": payload["class"],
        "id": task_id,
        **{name: from_plain(marks.get(name)) for name in _HEADERS},
        "retries": marks.get("retries") or 0,
        "timelimit": marks.get("timelimit") or [None, None],
        "root_id": marks.get("root_id") or task_id,
        "origin": marks.get("origin") or "sidekiq",
        "ignore_result": marks.get("ignore_result"),
        "replaced_task_nesting": marks.get("replaced_task_nesting") or 0,
        "stamps": from_plain(marks.get("stamps") or {}),
    }


def _properties(marks: Mapping[str, Any], task_id: str, queue: str) -> dict[str, Any]:
    properties = dict(from_plain(marks.get("properties") or {}))
    place = properties.get("delivery_info") or {"exchange": "", "routing_key": queue}
    priority = marks.get("priority") or 0
    return {
        "correlation_id": marks.get("correlation_id") or task_id,
        "reply_to": marks.get("reply_to") or "",
        "delivery_mode": 2,
        "priority": priority,
        **properties,
        "delivery_info": {**place, "priority": priority, REDELIVERED: bool(marks.get(REDELIVERED))},
    }


def _body(payload: Mapping[str, Any], marks: Mapping[str, Any], read_field: ReadField) -> Message:
    embedded = _embedded(marks, read_field)
    if "body" not in marks:
        body = json.dumps([*_arguments(payload, marks), embedded]).encode()
        return {"body": body, "content-type": "application/json", "content-encoding": "utf-8"}
    raw = b64decode(marks["body"], validate=True)
    if any(embedded.values()):
        raw = _with_embedded(raw, marks, embedded)
    return {"body": raw, "content-type": marks.get("content_type"), "content-encoding": marks.get("content_encoding")}


def _arguments(payload: Mapping[str, Any], marks: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """As Celery's json has them: what that lacks stays marked."""
    args = with_bare_floats(args_of(payload))
    if not marks.get("kw"):
        return args, {}
    if not args or type(args[-1]) is not dict:
        raise PayloadError(f"celery.kw says that keyword arguments come last, and args is {args!r}")
    return args[:-1], args[-1]


def _embedded(marks: Mapping[str, Any], read_field: ReadField) -> dict[str, Any]:
    embedded = {name: marks.get(name) for name in EMBEDDED}
    chord = embedded["chord"]
    if chord and not (type(chord) is dict and "task" in chord):
        raise PayloadError(
            "it is a part of a chord that sidekiq_celery has sent, which only its workers can end: run it by "
            "`sidekiq-celery worker`"
        )
    if marks.get("flow"):
        embedded["chain"] = _steps(marks["flow"], read_field)
    return embedded


def _steps(place: Any, read_field: ReadField) -> list[Any]:
    """The rest of a chain that is kept in Redis, the next step last."""
    steps: list[Any] = []
    while place:
        text = read_field(flow_key(place["id"]), place["next"])
        if text is None:
            break
        step = json.loads(text)
        steps.append(step["s"])
        place = step["n"]
    return steps[::-1]


def _with_embedded(raw: bytes, marks: Mapping[str, Any], embedded: Mapping[str, Any]) -> bytes:
    """A body in another serializer than JSON with what stands beside it."""
    from kombu import serialization
    from kombu.compression import compress, decompress

    kind, encoding, compression = marks.get("content_type"), marks.get("content_encoding"), marks.get("compression")
    if kind not in _HARMLESS:
        raise PayloadError(
            f"callbacks and steps of a {kind} call of sidekiq_celery are for its own workers: send it as json"
        )
    body = serialization.loads(decompress(raw, compression) if compression else raw, kind, encoding, accept=_HARMLESS)
    _, _, text = serialization.dumps((body[0], body[1], dict(embedded)), serialization.registry.type_to_name[kind])
    again: bytes = text.encode() if isinstance(text, str) else text
    return compress(again, compression)[0] if compression else again


def _texts(args: Any, kwargs: Any) -> dict[str, str]:
    """What a worker's log and monitors show of the arguments, which Ruby does not send."""
    return {"argsrepr": shown(tuple(args)), "kwargsrepr": shown(kwargs)}
