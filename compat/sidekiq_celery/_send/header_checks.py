"""
Checks whether a job's `celery` object is well-formed.

Anyone who can write to Redis may have written it. A task with malformed headers does not run: it fails with
`InvalidTaskError`. Its well-formed headers still apply, so that callers that wait for the task see the failure.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sidekiq_celery._send import unique
from sidekiq_celery._wire.chord_part import NUMBER, is_part
from sidekiq_celery._wire.json_values import from_plain
from sidekiq_celery._wire.message import shown
from sidekiq_celery._wire.payload import OF_THE_RUN, UNIQUE
from sidekiq_celery.exceptions import InvalidTaskError

TaskHeaders = Mapping[str, Any]

# Some write sys.maxsize for no limit, and that is what it is here: `seconds_of` knows what a process can wait for.
_MOST_SECONDS = float(sys.maxsize)
# Results of nested groups; Python cannot read deeper ones.
_MOST_LISTS = 1000
_SIGNATURE: dict[str, Any] = {
    "args": (list, tuple),
    "kwargs": dict,
    "options": dict,
    "subtask_type": str,
    "immutable": bool,
}


def sorted_out(task_headers: TaskHeaders) -> tuple[TaskHeaders, InvalidTaskError | None]:
    """
    Split off malformed task headers: the well-formed ones, and the error for the others. Null counts as absent.

    Args:
        task_headers: The `celery` object of a payload.
    """
    bad = [
        name for name, value in task_headers.items() if (check := _CHECKS.get(name)) is not None and not check(value)
    ]
    if not bad:
        return task_headers, None
    kept = {name: value for name, value in task_headers.items() if name not in bad}
    problems = [
        f"celery.{name} is {shown(task_headers[name])}, where {_KINDS[name][1]} should stand"
        for name in bad
        if task_headers[name] is not None
    ]
    return kept, InvalidTaskError("; ".join(problems)) if problems else None


def are_limits(value: Any) -> bool:
    """Whether *value* is a hard and a soft time limit in seconds; null for no limit."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(each is None or _is_span(each) for each in value)


def _is_span(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_SECONDS


def _exactly(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _is_id(value: Any) -> bool:
    return type(value) is str or isinstance(_read(value), UUID)


def _is_id_or_number(value: Any) -> bool:
    return type(value) is int or _is_id(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_moment(value: Any) -> bool:
    moment = _read(value)
    try:
        return isinstance(datetime.fromisoformat(moment) if type(moment) is str else moment, datetime)
    except ValueError:
        return False


def _are_names(value: Any) -> bool:
    names = _read(value)
    return isinstance(names, list | tuple | set | frozenset) and all(type(name) is str for name in names)


def is_signature(value: Any) -> bool:
    """Whether *value* can be a signature."""
    if not isinstance(value, dict) or type(value.get("task")) is not str:
        return False
    return all(isinstance(value[key], kind) for key, kind in _SIGNATURE.items() if value.get(key) is not None)


def _are_signatures(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(is_signature, value))


def is_place(value: Any) -> bool:
    """Whether *value* can be the place of a step."""
    return type(value) is dict and type(value.get("id")) is str and type(value.get("next")) is str


def _is_chain(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(is_signature(step) or is_place(step) for step in value)


def _is_chord(value: Any) -> bool:
    return is_signature(value) if not is_part(value) else _is_part_well_made(value)


def _is_part_well_made(part: Any) -> bool:
    depths = (part.get("open", 0), part.get("close", 0))
    are_shallow = all(_is_count(depth) and depth <= _MOST_LISTS for depth in depths)
    return type(part.get("id")) is str and _is_count(part[NUMBER]) and are_shallow


def _is_lock(value: Any) -> bool:
    return unique.mark_of({UNIQUE: value}) is not None and value.get("until") in (None, *unique.UNTIL)


def _read(value: Any) -> Any:
    """Decode a value of a type that JSON lacks, which is written as an object."""
    try:
        return from_plain(value) if type(value) is dict else value
    except Exception:  # noqa: BLE001 - kombu's decoders may raise anything
        return value


_TEXT = (_exactly(str), "a text")
_ID = (_is_id, "an id")
# Callers of Celery's tasks may choose numbers, too, and nothing here looks for these ids.
_ID_OR_NUMBER = (_is_id_or_number, "an id")
_FLAG = (_exactly(bool), "true or false")
_COUNT = (_is_count, "a whole number from 0")
_OBJECT = (_exactly(dict), "an object")
_MOMENT = (_is_moment, "a time in ISO 8601")
_SIGNATURES = (_are_signatures, "a list of signatures")
# These come from the job or the worker. If they were allowed here, they would replace those values in the request.
_ELSEWHERE = (_exactly(), "nothing")

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("retries", "replaced_task_nesting", "group_index"), _COUNT),
    **dict.fromkeys(("eta", "expires"), _MOMENT),
    **dict.fromkeys(("root_id", "parent_id", "correlation_id"), _ID_OR_NUMBER),
    "group": _ID,
    **dict.fromkeys(("shadow", "reply_to", "origin", "argsrepr", "kwargsrepr"), _TEXT),
    **dict.fromkeys(("body", "content_type", "content_encoding", "compression"), _TEXT),
    **dict.fromkeys(("kw", "embeds", "slot", "ignore_result"), _FLAG),
    **dict.fromkeys(("headers", "properties", "stamps", "delivery_info"), _OBJECT),
    **dict.fromkeys(("callbacks", "errbacks"), _SIGNATURES),
    "priority": (_exactly(int, float), "a number"),
    "timelimit": (are_limits, "a list of two numbers of seconds"),
    "stamped_headers": (_are_names, "a list of names"),
    "chain": (_is_chain, "a list of signatures"),
    "flow": (is_place, "the place of a step"),
    "chord": (_is_chord, "a signature, or the part of a chord"),
    "unique": (_is_lock, "a lock"),
    **dict.fromkeys(("id", "task", "args", "kwargs", "called_directly", "is_eager", "hostname", "utc"), _ELSEWHERE),
    **dict.fromkeys(("time_limit", "soft_time_limit", *OF_THE_RUN), _ELSEWHERE),
}
_CHECKS = {name: check for name, (check, _) in _KINDS.items()}
