"""
Turns a Celery message into a job that is ready to be written.

Nothing is ever unpickled, decompressed or executed here. A body that is plain JSON is read. Any other body is passed
along unchanged (`celery.body`), and the worker that runs the task reads it, if `accept_content` allows that.

A part of a chord stays with Celery: a counter in Celery's result backend decides when the chord's body is called. Tasks
that have run there have advanced that counter, and only a Celery worker will. In a body that is not opened, a chord
cannot be detected, so a member of any group stays.
"""

import time
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sidekiq_celery._send.clients import pushing_client
from sidekiq_celery._send.items import item_of_message
from sidekiq_celery._wire.json_values import from_plain
from sidekiq_celery._wire.message import TaskMessage
from sidekiq_celery._wire.payload import EMBEDDED, EMBEDS, KEY, embedded_in, sealed, task_headers_of_message
from sidekiq_celery.bridge.envelope import Envelope, read_json
from sidekiq_celery.bridge.fates import MALFORMED, Fate, Found, Left, Moved
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.ids import uuid
from sidekiq_celery.utils.time import maybe_make_aware
from sidekiq_py import payloads
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, PayloadError
from sidekiq_py.payloads import escaped, keys, record_failure

CHORD = "part of a chord that was called under Celery; a Celery worker has to finish it"
MAYBE_CHORD = "member of a group in a body that is not opened, so maybe part of a chord; a Celery worker has to run it"
SEALED = "protocol 1 in a body that is not opened; a Celery worker has to run it"

UNREADABLE = "unreadable, and the dead set already holds as many as task_keep_failed allows"

UNREADABLE_TASK = "celery.unreadable_message"
"""The class of the jobs in the dead set that hold unreadable messages."""

_POLLS_A_CHORD = "celery.chord_unlock"
# Set by the broker or by kombu, for one delivery.
_OF_THE_DELIVERY = frozenset({"redelivered", "compression"})
_PROPERTIES_OF_THE_DELIVERY = frozenset(
    {
        *("delivery_mode", "delivery_info", "body_encoding", "delivery_tag", "content_type", "content_encoding"),
        *("application_headers", "timestamp", "message_id", "user_id", "app_id", "cluster_id", "type", "expiration"),
    }
)
_OF_PROTOCOL_1 = (
    "task", "id", "eta", "expires", "retries", "timelimit", "group", "group_index", "root_id", "parent_id", "shadow",
    "origin", "argsrepr", "kwargsrepr",
)  # fmt: skip


class Forward:
    """
    Judges messages on their way to Sidekiq.

    Args:
        app: The app whose client middleware, priorities and tasks apply.
        renames: A mapping from queue names to new names.
    """

    def __init__(self, app: App, renames: Mapping[str, str]) -> None:
        self._app = app
        self._renames = renames
        self._client = pushing_client(app)
        self._unreadable_left = int(app.conf.task_keep_failed)

    def judge(self, found: Found, envelope: Envelope | None = None) -> Fate:
        """
        Decide what happens to a message.

        Args:
            found: Where the message is, and the text to keep if it cannot be understood.
            envelope: What the text says, if it is known; by default it is read, as a message in kombu's format.
        """
        queue = self._renames.get(found.queue, found.queue)
        headers: Mapping[str, Any] = {}
        try:
            envelope = envelope or Envelope.from_text(found.text)
            headers = envelope.headers
            return self._judge(envelope, queue)
        except (InvalidTaskError, PayloadError, ArgumentTypeError, ArgumentValueError, *MALFORMED) as error:
            return self._unreadable(found.text, queue, headers, error)

    def _judge(self, envelope: Envelope, queue: str) -> Fate:
        body = read_json(envelope.body, envelope.content_encoding, "body") if envelope.is_open else None
        if envelope.headers.get("task") is None and body is None:
            return Left(SEALED)
        headers, args, kwargs, embedded = _call(envelope, body)
        name = headers["task"]
        if embedded.get("chord") or name == _POLLS_A_CHORD:
            return Left(CHORD)
        if body is None and headers.get("group"):
            return Left(MAYBE_CHORD)
        item = self._item(envelope, headers, embedded, queue)
        note = ""
        if body is None:
            note = _seal(item, envelope)
        elif kwargs:
            item["args"] = [*args, kwargs]
            item[KEY] = {"kw": True, **item.get(KEY, {})}
        else:
            item["args"] = list(args)
        return self._moved(item, envelope, note)

    def _item(
        self, envelope: Envelope, headers: Mapping[str, Any], embedded: Mapping[str, Any], queue: str
    ) -> dict[str, Any]:
        """The job, without its arguments."""
        app, task = self._app, self._app._tasks.get(headers["task"])
        given = envelope.properties
        properties = {key: value for key, value in given.items() if key not in _PROPERTIES_OF_THE_DELIVERY}
        message = TaskMessage(dict(headers), properties, ((), {}, dict(embedded)), None)
        task_headers = task_headers_of_message(message, getattr(task, "ignore_result", None))
        item = item_of_message(app, headers["task"], message, queue, task)
        if task_headers:
            item[KEY] = task_headers
        return item

    def _moved(self, item: dict[str, Any], envelope: Envelope, note: str) -> Fate:
        task_id = item["jid"]
        try:
            outgoing = self._client.prepare(item)
        except (ArgumentTypeError, ArgumentValueError):
            if EMBEDS in item.get(KEY, {}):
                raise
            # Celery's JSON may contain NaN, which Ruby's does not: its text is passed along unchanged.
            item["args"] = []
            item[KEY] = {key: value for key, value in item.get(KEY, {}).items() if key not in ("kw", *EMBEDDED)}
            note = _seal(item, envelope)
            outgoing = self._client.prepare(item)
        if outgoing is None:
            return Moved("stopped", task_id, (), item["queue"])
        if outgoing.score is None:
            command: tuple[Any, ...] = ("LPUSH", keys.queue(outgoing.queue), outgoing.payload)
            return Moved("moved", task_id, command, outgoing.queue, note=note)
        command = ("ZADD", keys.SCHEDULE, outgoing.score, outgoing.payload)
        return Moved("scheduled", task_id, command, outgoing.queue, note=note)

    def _unreadable(self, text: bytes, queue: str, headers: Mapping[str, Any], error: Exception) -> Fate:
        """A job for the dead set with the reason and the message. The number is limited, so that others stay in it."""
        if self._unreadable_left <= 0:
            return Left(UNREADABLE)
        self._unreadable_left -= 1
        now = time.time()
        dialect = self._client.detection.dialect(now)
        task = _text(headers.get("task"))
        payload: dict[str, Any] = {
            "retry": False,
            "queue": queue,
            "class": UNREADABLE_TASK,
            "args": [task] if task else [],
            "jid": _text(headers.get("id")) or uuid(),
            "created_at": dialect.stamp(now),
            KEY: {"message": b64encode(text).decode()},
        }
        reason = str(error) or type(error).__name__
        record_failure(
            payload,
            error_class=type(error).__name__,
            error_message=f"the bridge cannot read this message: {reason}",
            backtrace=None,
            queue=queue,
            dialect=dialect,
            now=now,
        )
        command = ("ZADD", keys.DEAD, payloads.score_text(now), payloads.dump(payload, dialect=dialect))
        return Moved("unreadable", payload["jid"], command, queue, note=f"unreadable: {reason}")


def _text(header: Any) -> str:
    """
    The text of a header, without what no payload can hold; "" if it is no text. Either may be why nobody can read the
    message.
    """
    return escaped(header) if isinstance(header, str) else ""


def _call(envelope: Envelope, body: Any) -> tuple[dict[str, Any], Any, Any, Mapping[str, Any]]:
    """
    The headers, arguments, keyword arguments and embedded signatures of a message, in either protocol.

    Source: Celery 5.7.0, `celery.worker.strategy`.
    """
    own = {
        key: value
        for key, value in envelope.headers.items()
        if key not in _OF_THE_DELIVERY and not key.startswith("x-")
    }
    if isinstance(body, dict):
        headers = {**_of_protocol_1(body), **own}
        args, kwargs, embedded = body.get("args") or [], body.get("kwargs") or {}, body
    elif body is None:
        headers, args, kwargs, embedded = own, [], {}, {}
    else:
        headers = own
        if not isinstance(body, list) or len(body) < 3:
            raise InvalidTaskError("the body is not a list of arguments, keyword arguments and embedded signatures")
        args, kwargs, embedded = body[0], body[1], body[2] or {}
    headers = _with_text_as_id(headers)
    _check(headers, args, kwargs, embedded)
    return headers, args, kwargs, embedded_in(embedded)


def _of_protocol_1(body: Mapping[str, Any]) -> dict[str, Any]:
    headers = {key: body[key] for key in _OF_PROTOCOL_1 if body.get(key) is not None}
    if body.get("taskset"):
        headers["group"] = body["taskset"]
    if body.get("utc", True):
        for key in ("eta", "expires"):
            if headers.get(key):
                headers[key] = maybe_make_aware(datetime.fromisoformat(headers[key])).isoformat()
    return headers


def _with_text_as_id(headers: dict[str, Any]) -> dict[str, Any]:
    """The headers with the task's id as results are stored under it: callers may choose a UUID or a number."""
    given = headers.get("id")
    task_id = from_plain(given)
    if not isinstance(task_id, UUID) and type(task_id) is not int:
        return headers
    return {**headers, **{key: str(task_id) for key in ("id", "root_id") if headers.get(key) == given}}


def _check(headers: Mapping[str, Any], args: Any, kwargs: Any, embedded: Any) -> None:
    for key in ("task", "id"):
        if not isinstance(headers.get(key), str) or not headers[key]:
            raise InvalidTaskError(f"the message's {key} is {headers.get(key)!r}, where a name should stand")
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(embedded, Mapping):
        raise InvalidTaskError(
            "arguments are not a list, or keyword arguments or embedded signatures are not an object"
        )
    if headers.get("expires"):
        datetime.fromisoformat(headers["expires"])


def _seal(item: dict[str, Any], envelope: Envelope) -> str:
    """Put the unopened body into *item*. Returns the remark for the summary."""
    compression = envelope.headers.get("compression")
    task_headers = sealed(envelope.body, envelope.content_type, envelope.content_encoding, compression)
    item[KEY] = {**item.get(KEY, {}), **task_headers, EMBEDS: True}
    return f"passed along unopened: {envelope.content_type}" + (f" ({compression})" if compression else "")
