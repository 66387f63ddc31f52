"""
Converts a call's message to the fields of a job, and a job back to its task's request.

Name, id, arguments and queue are in Sidekiq's own fields. Everything else is in the `celery` object, without empty
keys. A job that Ruby has enqueued does not have this object. `docs/celery_architecture.md` has the table.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from sidekiq_celery._wire.decompression import decompressed
from sidekiq_celery._wire.json_values import from_plain, to_plain
from sidekiq_celery._wire.message import TaskMessage
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_py.payloads import shown

KEY = "celery"
"""The payload's key in addition to Sidekiq's own."""

EMBEDS = "embeds"
"""Marks a `body` that a Celery client has written: it also contains the callbacks, errbacks, chain and chord."""

SLOT = "slot"
"""Marks a job that waits in `schedule` because of its task's rate limit."""

UNIQUE = "unique"
"""Marks a job that holds the lock of a unique task."""

EMBEDDED = ("callbacks", "errbacks", "chain", "chord")
"""The tasks that follow a call: next to the arguments in Celery's messages, among the task headers here."""

TaskHeaders = dict[str, Any]

_NOTHING: Mapping[str, Any] = {}

# Headers that are stored elsewhere, or are implied by their absence.
_ELSEWHERE = frozenset({"lang", "task", "id", "root_id", "timelimit", "ignore_result", "stamps"})
SAME_NAME = (
    "shadow", "eta", "expires", "group", "group_index", "retries", "parent_id", "argsrepr", "kwargsrepr", "origin",
    "replaced_task_nesting", "stamped_headers",
)  # fmt: skip
"""A message's headers that a payload's `celery` object has under the same names."""

_OWN_HEADERS = _ELSEWHERE | set(SAME_NAME)
# Keys of the body or the job, not of the request.
_OF_THE_BODY = frozenset({"kw", "body", "content_type", "content_encoding", EMBEDS, SLOT, UNIQUE})
# Fields of the request that a caller cannot set.
OF_THE_RUN = frozenset({"_children", "_next_step", "_own_max_retries", "_protected", "_question"})
_NOT_FROM_HEADERS = OF_THE_RUN.union(EMBEDDED)
_NO_FIELDS = _OF_THE_BODY | {"flow", "priority"}
_OF_PROPERTIES = frozenset({"reply_to", "correlation_id", "priority"})


def task_headers_of(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    A job's `celery` object; empty for a job from Ruby.

    Raises:
        InvalidTaskError: The value under that key is not an object.
    """
    task_headers = payload.get(KEY)
    if task_headers is None:
        return _NOTHING
    if type(task_headers) is not dict:
        raise InvalidTaskError(f"the key 'celery' holds {task_headers!r}, where an object should stand")
    return task_headers


def task_headers_of_message(message: TaskMessage, ignores_results: Any) -> TaskHeaders:
    """
    The `celery` object for a call's payload.

    Args:
        ignores_results: The task's own setting, which every worker knows.

    Raises:
        TypeError: A header cannot be written as JSON.
    """
    headers, properties, (_, _, embedded), _ = message
    task_headers: TaskHeaders = {name: headers[name] for name in SAME_NAME if headers.get(name)}
    if headers.get("group_index") == 0:
        task_headers["group_index"] = 0
    task_id = headers["id"]
    if headers.get("root_id") not in (None, task_id):
        task_headers["root_id"] = headers["root_id"]
    if any(limit is not None for limit in headers.get("timelimit") or ()):
        task_headers["timelimit"] = list(headers["timelimit"])
    ignores = headers.get("ignore_result")
    if ignores is not None and bool(ignores) != bool(ignores_results):
        task_headers["ignore_result"] = bool(ignores)
    if headers.get("stamps"):
        task_headers["stamps"] = headers["stamps"]
    task_headers |= embedded_in(embedded)
    own = {name: value for name, value in headers.items() if name not in _OWN_HEADERS}
    if own:
        task_headers["headers"] = own
    _add_properties(task_headers, properties, task_id)
    plain: TaskHeaders = to_plain(task_headers)
    return plain


def _add_properties(task_headers: TaskHeaders, properties: Mapping[str, Any], task_id: str) -> None:
    for name, value in properties.items():
        if name not in _OF_PROPERTIES:
            if value is not None:
                task_headers.setdefault("properties", {})[name] = value
        elif name == "priority" and isinstance(value, str) and value.isascii() and value.isdigit():
            # kombu takes texts of digits, too, such as those of environment variables.
            task_headers[name] = int(value)
        elif value and value != task_id:
            task_headers[name] = value


def encoded_arguments(
    args: Any, kwargs: Mapping[str, Any], serializer: str, compression: str | None
) -> tuple[list[Any], TaskHeaders]:
    """
    A call's arguments in the form for `args`, and the task headers that describe them.

    Raises:
        TypeError: They cannot be written as JSON.
        kombu.exceptions.EncodeError: Another serializer cannot write them.
        kombu.exceptions.OperationalError: There is no such compression.
    """
    if serializer != "json" or compression:
        return [], _body(args, kwargs, serializer, compression)
    plain: list[Any] = to_plain(list(args))
    if not kwargs:
        return plain, {}
    plain.append(to_plain(dict(kwargs)))
    return plain, {"kw": True}


def _body(args: Any, kwargs: Any, serializer: str, compression: str | None) -> TaskHeaders:
    kombu: Any = import_module("kombu.serialization")
    content_type, encoding, body = kombu.dumps((args, kwargs), serializer)
    raw = body.encode("utf-8") if isinstance(body, str) else body
    if compression:
        raw, compression = _compressed(raw, compression)
    return sealed(raw, content_type, encoding, compression)


def _compressed(raw: bytes, compression: str) -> tuple[bytes, str]:
    compressing: Any = import_module("kombu.compression")
    try:
        compressed: tuple[bytes, str] = compressing.compress(raw, compression)
    except KeyError as error:
        # kombu's connections report any error of publishing so.
        raise import_module("kombu.exceptions").OperationalError(f"unknown compression {error}") from error
    return compressed


def sealed(body: bytes, content_type: str | None, content_encoding: str | None, compression: str | None) -> TaskHeaders:
    """The task headers for a body that is passed through unread, for the worker to decode."""
    task_headers: TaskHeaders = {
        "body": b64encode(body).decode(),
        "content_type": content_type,
        "content_encoding": content_encoding,
    }
    if compression:
        task_headers["compression"] = compression
    return task_headers


def arguments_of(app: App, args: list[Any], task_headers: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """
    The positional and keyword arguments of a job.

    Args:
        args: The payload's `args`.
        task_headers: Its `celery` object; empty for a job from Ruby, whose arguments are all positional.

    Raises:
        kombu.exceptions.ContentDisallowed: `accept_content` does not allow their serializer.
        kombu.exceptions.DecodeError: They cannot be decoded.
        InvalidTaskError: They are malformed.
    """
    if "body" in task_headers:
        return _read_body(app, task_headers)
    read: list[Any] = from_plain(args)
    if task_headers.get("kw"):
        if not read or type(read[-1]) is not dict:
            raise InvalidTaskError(f"celery.kw says that keyword arguments come last, and args is {args!r}")
        return read[:-1], read[-1]
    return read, {}


def with_embedded(app: App, task_headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    *task_headers* with the fields that a Celery client has put into the body: callbacks, errbacks, chain, chord.

    Raises:
        As `arguments_of`.
    """
    if not task_headers.get(EMBEDS):
        return task_headers
    body = _loaded_body(app, task_headers)
    embedded = body[2] if isinstance(body, list | tuple) and len(body) > 2 else None
    if not isinstance(embedded, Mapping):
        return task_headers
    return {**task_headers, **embedded_in(embedded)}


def embedded_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `EMBEDDED` that have a value. An empty chain is one: only the last step of a chain has it."""
    return {name: fields[name] for name in EMBEDDED if fields.get(name) or (name == "chain" and fields.get(name) == [])}


def _read_body(app: App, task_headers: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    body = _loaded_body(app, task_headers)
    try:
        args, kwargs = body[0], body[1]
        return list(args), dict(kwargs)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidTaskError(f"celery.body holds no arguments and keyword arguments: {error}") from error


def _loaded_body(app: App, task_headers: Mapping[str, Any]) -> Any:
    kombu: Any = import_module("kombu.serialization")
    accepted = kombu.prepare_accept_content(app.conf.accept_content)
    raw = _raw_body(task_headers["body"])
    if task_headers.get("compression"):
        raw = _decompressed(raw, task_headers["compression"], int(app.conf.worker_max_body_bytes or 0))
    return kombu.loads(raw, task_headers.get("content_type"), task_headers.get("content_encoding"), accept=accepted)


def _decompressed(raw: bytes, compression: Any, most_bytes: int) -> bytes:
    """
    *raw* without its compression.

    Raises:
        InvalidTaskError: That would be more than *most_bytes*, unless these are 0.
    """
    found = decompressed(raw, compression, most_bytes)
    if found is None:
        raise InvalidTaskError(
            f"celery.body would have more than {most_bytes:,} bytes without its compression, and that is "
            "worker_max_body_bytes: pass large values by reference, such as a path or a key, or raise the setting"
        )
    return found


def _raw_body(text: Any) -> bytes:
    try:
        raw = b64decode(text)
    except (TypeError, ValueError):
        raw = b""
    if not raw:
        raise InvalidTaskError(f"celery.body is {shown(text)}; it must be the base64 of a serialized body")
    return raw


def request_fields(
    name: str,
    payload: Mapping[str, Any],
    task_headers: Mapping[str, Any],
    queue: str,
    args: Any,
    kwargs: Any,
    hostname: str | None,
) -> dict[str, Any]:
    """
    The fields of a task's `request`, except those that have their defaults.

    Args:
        name: The task's name.
        payload: The parsed job.
        task_headers: Its `celery` object.
        queue: The queue it came from, without a suffix for the priority.
    """
    task_id = payload.get("jid")
    fields: dict[str, Any] = {
        "id": task_id,
        "task": name,
        "args": args,
        "kwargs": kwargs,
        "called_directly": False,
        "hostname": hostname,
        "root_id": task_id,
        "correlation_id": task_id,
        "timelimit": [None, None],
        "stamps": {},
        "delivery_info": {"exchange": "", "routing_key": queue, "priority": 0, "redelivered": False},
    }
    return fields if not task_headers else _with_task_headers(fields, task_headers)


def _with_task_headers(fields: dict[str, Any], task_headers: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in task_headers.items():
        if key not in _NO_FIELDS:
            # Signatures may contain values that JSON lacks.
            fields[key] = value if type(value) is str else from_plain(value)
    if "headers" in task_headers:
        own = fields.pop("headers")
        if own:
            # As in Celery, they become fields of the request, but they never replace the request's own fields.
            fields = {**{name: own[name] for name in own if name not in _NOT_FROM_HEADERS}, **fields}
            fields.setdefault("headers", own)
    if task_headers.get("flow"):
        # The steps are read from Redis when they are needed.
        fields["chain"] = [task_headers["flow"]]
    if task_headers.get("priority") is not None:
        fields["delivery_info"]["priority"] = task_headers["priority"]
    if task_headers.get("timelimit"):
        fields["time_limit"], fields["soft_time_limit"] = fields["timelimit"]
    return fields
