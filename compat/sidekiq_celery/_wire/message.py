"""
A call as a Celery message: headers, properties and body.

`before_task_publish` and routers see the message and may change it; `sidekiq_celery._wire.payload` turns it into a job.

Source: Celery 5.7.0, `celery.app.amqp`, protocol 2.
"""

import numbers
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sidekiq_celery._wire.printed_call import redacted_text
from sidekiq_celery.contract import App
from sidekiq_celery.utils.nodenames import anon_nodename
from sidekiq_celery.utils.saferepr import saferepr
from sidekiq_celery.utils.time import add_seconds_to_datetime, maybe_make_aware
from sidekiq_py.payloads import shown as shown_value

_LEAST_SECONDS = -2147483648
_REPR_MAX_CHARACTERS = 1024
_ONLY_V2 = ("root_id", "parent_id")
_EMBEDDED_V1 = ("callbacks", "errbacks", "chord")


class TaskMessage(NamedTuple):
    """
    A call as a message.

    Args:
        body: Positional arguments, keyword arguments, and the tasks that follow the call.
        sent_event: The fields of the event `task-sent`, if that event is enabled.
    """

    headers: dict[str, Any]
    properties: dict[str, Any]
    body: tuple[Any, Any, dict[str, Any]]
    sent_event: dict[str, Any] | None


def as_task_v2(
    app: App,
    task_id: str,
    name: str,
    args: Any = None,
    kwargs: Any = None,
    countdown: float | None = None,
    eta: Any = None,
    group_id: str | None = None,
    group_index: int | None = None,
    expires: Any = None,
    retries: int = 0,
    chord: Any = None,
    callbacks: Any = None,
    errbacks: Any = None,
    reply_to: str | None = None,
    time_limit: float | None = None,
    soft_time_limit: float | None = None,
    create_sent_event: bool = False,
    root_id: str | None = None,
    parent_id: str | None = None,
    shadow: str | None = None,
    chain: Any = None,
    now: datetime | None = None,
    timezone: Any = None,
    origin: str | None = None,
    ignore_result: Any = False,
    argsrepr: str | None = None,
    kwargsrepr: str | None = None,
    stamped_headers: Any = None,
    replaced_task_nesting: int = 0,
    shows_arguments: bool = True,
    **options: Any,
) -> TaskMessage:
    """
    Create the message for a call.

    Args:
        countdown, expires: Seconds from *now*; like *eta*, *expires* may also be a datetime or an ISO 8601 string.
        shows_arguments: True to put the arguments' text into the headers even if the caller gave none.
        options: The stamps; other options are ignored.

    Raises:
        TypeError: *args* is not a list or tuple, *kwargs* is not a mapping, or a time is neither text nor a datetime.
        ValueError: *countdown* or *expires* is too far in the past.
        OverflowError: *countdown* or *expires* is too far in the future.
    """
    args, kwargs = args or (), kwargs or {}
    if not isinstance(args, list | tuple):
        raise TypeError("task args must be a list or tuple")
    if not isinstance(kwargs, Mapping):
        raise TypeError("task keyword arguments must be a mapping")
    if countdown:
        eta = _in_seconds(app, countdown, "countdown", now, timezone)
    if isinstance(expires, numbers.Real):
        expires = _in_seconds(app, float(expires), "expires", now, timezone)
    if shows_arguments or create_sent_event:
        argsrepr = shown(args) if argsrepr is None else argsrepr
        kwargsrepr = shown(kwargs) if kwargsrepr is None else kwargsrepr
    headers = {
        "lang": "py",
        "task": name,
        "id": task_id,
        "shadow": shadow,
        "eta": _iso(eta, "eta", "a datetime, or seconds as countdown"),
        "expires": _iso(expires, "expires", "a number of seconds or a datetime"),
        "group": group_id,
        "group_index": group_index,
        "retries": retries,
        "timelimit": [time_limit, soft_time_limit],
        "root_id": root_id or task_id,
        "parent_id": parent_id,
        "argsrepr": argsrepr,
        "kwargsrepr": kwargsrepr,
        "origin": origin or anon_nodename(),
        "ignore_result": ignore_result,
        "replaced_task_nesting": replaced_task_nesting,
        "stamped_headers": stamped_headers,
        "stamps": {header: options[header] for header in stamped_headers or []},
    }
    embedded = {"callbacks": callbacks, "errbacks": errbacks, "chain": chain, "chord": chord}
    properties = {"correlation_id": task_id, "reply_to": reply_to or ""}
    event = _sent_event(headers) if create_sent_event else None
    return TaskMessage(headers, properties, (args, kwargs, embedded), event)


def as_task_v1(app: App, *args: Any, **options: Any) -> Any:
    """The same in protocol 1, for programs that ask for it: a `TaskMessage` whose body is a dict."""
    message = as_task_v2(app, *args, **options)
    event = message.sent_event and {key: value for key, value in message.sent_event.items() if key not in _ONLY_V2}
    body: Any = body_v1(message, utc=app.conf.enable_utc)
    return message._replace(headers={}, body=body, sent_event=event)


def body_v1(message: TaskMessage, *, utc: bool) -> dict[str, Any]:
    """The message's body in protocol 1, which has all that the headers say. Source: Celery 5.7.0, `AMQP.as_task_v1`."""
    args, kwargs, embedded = message.body
    headers = message.headers
    return {
        "args": args,
        "kwargs": kwargs,
        **{key: headers[key] for key in ("task", "id", "group", "group_index", "retries", "eta", "expires")},
        "timelimit": tuple(headers["timelimit"]),
        "utc": utc,
        "taskset": headers["group"],
        **{key: embedded[key] for key in _EMBEDDED_V1},
    }


def with_body_v1(message: TaskMessage, body: Mapping[str, Any]) -> TaskMessage:
    """*message* with what has been changed in a body that `body_v1` made."""
    embedded = {**message.body[2], **{key: body[key] for key in _EMBEDDED_V1}}
    return message._replace(body=(body["args"], body["kwargs"], embedded))


def aware(when: Any) -> datetime:
    """A datetime, or an ISO 8601 string, as a datetime with a time zone: UTC if it has none, as in Celery's workers."""
    return maybe_make_aware(datetime.fromisoformat(when) if isinstance(when, str) else when)


def _in_seconds(app: App, seconds: float, what: str, now: datetime | None, timezone: Any) -> datetime:
    try:
        is_in_range = seconds >= _LEAST_SECONDS
    except TypeError:
        raise TypeError(f"{what} is {seconds!r}; give a number of seconds") from None
    if not is_in_range:
        raise ValueError(f"{what} is out of range: {seconds!r}")
    # Count elapsed seconds, because the app's local time may jump by an hour in between.
    try:
        moment = add_seconds_to_datetime(now or app.now(), seconds)
    except OverflowError as error:
        raise OverflowError(f"{what} is out of range: {shown_value(seconds)} ({error})") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone or app.timezone)


def _iso(when: Any, what: str, advice: str) -> str | None:
    if not when or isinstance(when, str):
        return when
    try:
        return when.isoformat()  # type: ignore[no-any-return]
    except AttributeError:
        raise TypeError(f"{what} is {when!r}; give {advice}") from None


def shown(value: Any) -> str:
    """Arguments as text for logs and monitors: truncated, and never raising an error."""
    return saferepr(value, _REPR_MAX_CHARACTERS)


def _sent_event(headers: Mapping[str, Any]) -> dict[str, Any]:
    same = ("root_id", "parent_id", "retries", "eta", "expires")
    return {
        "uuid": headers["id"],
        "name": headers["task"],
        **{key: redacted_text(headers["task"], headers[f"{key}repr"]) for key in ("args", "kwargs")},
        **{key: headers[key] for key in same},
    }
