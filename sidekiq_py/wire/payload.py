"""
The job hash: defaults, checks and the order of its keys.

A payload is a plain dict, because middleware adds its own keys and the order of keys is part of the bytes. A push goes
through `call_item` (or starts with the caller's own item), `normalize`, client middleware, `encode`. A due job goes
through `promote`, client middleware, `for_queue`.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sidekiq_py.errors import ArgumentError, PayloadError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.float_text import ruby_to_s
from sidekiq_py.wire.json_dialect import check_args, dumps, loads
from sidekiq_py.wire.json_writer import write_integer

DEFAULT_OPTIONS: dict[str, Any] = {"retry": True, "queue": "default"}

# A number of seconds below this is an interval; above it, a moment. Source: Sidekiq, `perform_in` in every release.
LEAST_MOMENT = 1_000_000_000


def call_item(
    job_class: str,
    args: list[Any],
    *,
    dialect: Dialect,
    set_options: Mapping[str, Any] | None = None,
    at: float | None = None,
    is_scheduled: bool | None = None,
) -> dict[str, Any]:
    """
    The item that `perform_async`, `perform_in` and `set(...)` pass to the client, in that release's order.

    Args:
        job_class: The payload's `class`.
        args: The job's arguments.
        dialect: The release to follow.
        set_options: The options of `set(...)`, or `None` if it was not called.
        at: Epoch seconds for a scheduled push.
        is_scheduled: True for `perform_in` and `perform_at`; only needed if the moment is past and *at* is omitted.

    Source: Sidekiq 6.0.4 to 8.1.7, worker.rb and job.rb, `Setter` and `ClassMethods`.
    """
    item: dict[str, Any] = dict(set_options or {})
    if is_scheduled is None:
        is_scheduled = at is not None
    if dialect.writes_args_first(is_set=set_options is not None, is_scheduled=is_scheduled):
        item["args"] = args
        item["class"] = job_class
    else:
        item["class"] = job_class
        item["args"] = args
    if at is not None:
        item["at"] = at
    return item


def normalize(
    item: Mapping[str, Any],
    *,
    dialect: Dialect,
    now: float,
    jid: str,
    class_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Check an item and complete it to a payload, without `enqueued_at`. The item itself is not changed.

    An empty queue name is refused for every release; before 6.4, Ruby pushed to a queue that its UI could not open.

    Args:
        item: Has string keys; `class` and `args` are required.
        dialect: The release to follow.
        now: Seconds since the epoch, for `created_at`.
        jid: Used if the item has none.
        class_options: The options that the job's class declares in addition to, or instead of, `retry` and `queue`.

    Raises:
        PayloadError: The item is not a usable job. `check_args` checks if `args` can be JSON.

    Source: Sidekiq 6.4.1 and 8.1.7, job_util.rb, `validate` and `normalize_item`.
    """
    _validate(item)
    payload = _with_defaults(item, class_options or {}, dialect)
    queue = payload["queue"]
    if type(queue) is not str or not queue:
        raise PayloadError(f"queue is {shown(queue)}; give the queue's name as a string, without 'queue:' before it")
    if payload.get("jid") is None:
        payload["jid"] = jid
    if dialect.has_retry_for and payload.get("retry_for") is not None:
        payload["retry_for"] = _whole_seconds(payload["retry_for"])
    if not _is_true(payload.get("created_at")):
        payload["created_at"] = dialect.stamp(now)
    return payload


def bulk_payload(
    template: Mapping[str, Any], args: list[Any], *, jid: str, dialect: Dialect, now: float, at: float | None = None
) -> dict[str, Any]:
    """
    One job of a bulk push, made from the normalised item.

    Args:
        template: The normalised item; its `args` and `jid` are replaced in place.
        args: This job's arguments.
        jid: This job's id.
        dialect: The release to follow.
        now: Seconds since the epoch.
        at: Epoch seconds for a scheduled push.

    Source: Sidekiq 6.0.4 to 8.1.7, client.rb, `push_bulk`.
    """
    payload = {**template, "args": args, "jid": jid}
    if dialect.bulk_stamps_first:
        payload["enqueued_at"] = dialect.stamp(now)
    if at is not None:
        payload["at"] = at
    return payload


def encode(payload: dict[str, Any], *, dialect: Dialect, now: float) -> tuple[str | None, bytes]:
    """
    The bytes to push, and before them the score in `schedule` if the payload has an `at`, or None if it goes to its
    queue.

    For a queue, sets `enqueued_at` in the payload, in place or after all other keys. A scheduled payload is not
    changed, because a second try needs its `at`.

    Args:
        payload: From `normalize` or `prepare_repush`, after client middleware.
        dialect: The release to follow.
        now: Seconds since the epoch, for `enqueued_at`.

    Raises:
        PayloadError: `at` cannot be a score.
        ArgumentError: A value is not JSON.
    """
    at = payload.get("at")
    if at is None:
        payload.pop("at", None)
        payload["enqueued_at"] = dialect.stamp(now)
        score, member = None, payload
    else:
        _validate_at(at)
        dropped = ("at", "enqueued_at") if dialect.scheduled_drops_enqueued_at else ("at",)
        score, member = score_text(at), {key: value for key, value in payload.items() if key not in dropped}
    try:
        return score, dumps(member, dialect.float_text, "payload")
    except ArgumentError:
        check_args(args_of(payload))  # its error names the argument's place rather than the payload's
        raise


def for_queue(payload: dict[str, Any], *, dialect: Dialect, now: float) -> bytes:
    """The bytes to push to a queue: as `encode`, but drops `at`."""
    payload.pop("at", None)
    return encode(payload, dialect=dialect, now=now)[1]


def score_text(seconds: float | int) -> str:
    """
    A sorted-set score as Ruby's `to_s` writes it, which does not depend on the json gem: `1700000000.5`, `4000000000`.

    Args:
        seconds: Seconds since the epoch; finite.
    """
    return str(seconds) if isinstance(seconds, int) else ruby_to_s(seconds)


def dump(payload: Mapping[str, Any], *, dialect: Dialect) -> bytes:
    """
    A payload's bytes, as Ruby would encode it again.

    Raises:
        ArgumentTypeError: A value is not JSON.
        ArgumentValueError: A value is not JSON; `1E400`, for example, can be read but never written.
    """
    return dumps(payload, dialect.float_text, "payload")


def parse_job_or_empty(raw: bytes) -> dict[str, Any]:
    """Like `parse_job`, but returns an empty dict if the bytes are not a usable job."""
    try:
        return parse_job(raw)
    except PayloadError:
        return {}


def parse_job(raw: bytes) -> dict[str, Any]:
    """
    Parse a payload. Missing keys are not added; use `args_of` to get its arguments.

    Raises:
        JsonParseError: It is not JSON.
        PayloadError: It is not an object, names no class, or its `args` are not an array.
    """
    payload = loads(raw)
    if type(payload) is not dict:
        raise PayloadError(f"a job must be a JSON object, but this is {_json_name(payload)}")
    job_class = payload.get("class")
    if type(job_class) is not str or not job_class:
        raise PayloadError(f"the job's class is {shown(job_class)}, but it must be a name")
    args = payload.get("args")
    if args is not None and type(args) is not list:
        raise PayloadError(f"the job's args are {_json_name(args)}, but they must be an array")
    return payload


def args_of(payload: Mapping[str, Any]) -> list[Any]:
    """A payload's arguments. Missing or null means none, as in Ruby."""
    return payload.get("args") or []


def prepare_repush(payload: Mapping[str, Any], *, dialect: Dialect, now: float, jid: str) -> dict[str, Any]:
    """
    A stored payload, prepared for another push: `retry` and `queue` are added if missing and come first (since 6.0.4);
    the other keys keep their order.

    It refuses nothing, because the job would be lost. Where Ruby raises, an unusable queue name becomes the default one
    and an unusable `at` is dropped. A payload that still has `at` is scheduled, as in Ruby's client.

    Args:
        payload: The parsed payload.
        dialect: The release to follow.
        now: Seconds since the epoch, for a missing `created_at`.
        jid: Used if the payload has none.

    Source: Sidekiq 6.4.1 and 8.1.7, scheduled.rb `enqueue_jobs` and job_util.rb `normalize_item`.
    """
    repushed = _with_defaults(payload, {}, dialect)
    if "at" in repushed and not _is_number(repushed["at"]):
        del repushed["at"]
    repushed["queue"] = _queue_name(repushed["queue"])
    if repushed.get("jid") is None:
        repushed["jid"] = jid
    retry_for = repushed.get("retry_for")
    if dialect.has_retry_for and type(retry_for) is float and math.isfinite(retry_for):
        repushed["retry_for"] = int(retry_for)
    if not _is_true(repushed.get("created_at")):
        repushed["created_at"] = dialect.stamp(now)
    return repushed


def _is_true(value: Any) -> bool:
    """Truth as in Ruby, where only nil and false are false, so that `||=` replaces them."""
    return value is not None and value is not False


def absolute_at(interval: float, now: float) -> float | None:
    """
    The moment that `perform_in` or `perform_at` means, or `None` if it is not in the future, so that the job is pushed
    immediately.

    Args:
        interval: Seconds from now if below 1,000,000,000, otherwise since the epoch.
        now: Seconds since the epoch.

    Raises:
        PayloadError: *interval* is not finite.
    """
    if not is_finite(interval):
        raise PayloadError(f"a job cannot be scheduled at {shown(interval)}; give seconds from now, or since the epoch")
    seconds = float(interval)
    at = now + seconds if seconds < LEAST_MOMENT else seconds
    return at if at > now else None


def _with_defaults(item: Mapping[str, Any], class_options: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    defaults = {**DEFAULT_OPTIONS, **class_options}
    if dialect.defaults_first:
        return {**defaults, **item}
    merged = dict(item)
    for key, value in defaults.items():
        if merged.get(key) is None:
            merged[key] = value
    return merged


def _validate(item: Mapping[str, Any]) -> None:
    if not isinstance(item, Mapping):
        raise PayloadError(f"a job must be a dict with 'class' and 'args', but this is {shown(item)}")
    for key in item:
        if type(key) is not str:
            raise PayloadError(f"a job's keys must be strings, but {key!r} is of type {type(key).__name__}")
    if "class" not in item or "args" not in item:
        missing = "class" if "class" not in item else "args"
        raise PayloadError(f"the job has no {missing!r}: push {{'class': 'Name', 'args': [...]}}")
    if type(item["args"]) is not list:
        raise PayloadError(f"args is {shown(item['args'])}; give a list, [x] for a single argument and [] for none")
    if type(item["class"]) is not str or not item["class"]:
        raise PayloadError(f"class is {shown(item['class'])}; give the name under which workers know the job")
    if "at" in item:
        _validate_at(item["at"])
    tags = item.get("tags")
    # An empty text is true in Ruby, too, and its Web UI could not show the job.
    if tags is not None and tags is not False and type(tags) is not list:
        raise PayloadError(f"tags is {shown(tags)}; give a list of strings")
    jid = item.get("jid")
    if jid is not None and (type(jid) is not str or not jid):
        raise PayloadError(f"jid is {shown(jid)}; give a string that no other job has, or leave it out")


def _validate_at(at: Any) -> None:
    if not _is_number(at):
        raise PayloadError(f"at is {shown(at)}; give epoch seconds, for a datetime its .timestamp()")


def _is_number(value: Any) -> bool:
    return (type(value) is int or type(value) is float) and is_finite(value)


def is_finite(number: float) -> bool:
    """True if *number* can be a score: not infinite, not NaN, and not an integer too large for a float."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """A value for an error message. Python cannot print integers of over 4,300 digits, and 400 are unreadable."""
    if isinstance(value, int) and not is_finite(value):
        return "an integer too large for a float"
    try:
        return repr(value)
    except ValueError:
        return f"{_json_name(value)} with an integer of thousands of digits"


def _whole_seconds(retry_for: Any) -> int:
    seconds = retry_for.total_seconds() if isinstance(retry_for, timedelta) else retry_for
    if not _is_number(seconds):
        raise PayloadError(f"retry_for is {shown(retry_for)}; give seconds or a timedelta")
    if seconds > LEAST_MOMENT:
        raise PayloadError(f"retry_for is {shown(retry_for)}; give a duration such as 48 * 3600, not a point in time")
    return int(seconds)


def _queue_name(queue: Any) -> str:
    if type(queue) is str and queue:
        return queue
    if type(queue) is int:
        return write_integer(queue)
    return str(DEFAULT_OPTIONS["queue"])


def _json_name(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), "a value")
