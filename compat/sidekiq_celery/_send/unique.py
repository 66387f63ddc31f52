"""
Unique tasks: with `unique_for=seconds` a call is not sent while the same call already exists.

`sidekiq_py:unique:<digest of the call>` holds the id of the task that is enqueued, scheduled, waiting for a retry or
running. The script that enqueues the task takes this lock, and the one that ends the task releases it; otherwise it
expires `unique_for` seconds after the task was due. The payload carries it as `celery.unique`: `lock` is the digest,
`for` the seconds, and `until` is there if it is `"start"`.

Calls made by a workflow (steps, members of a group or chord, callbacks) are always sent and take no lock, because the
workflow waits for them.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sidekiq_celery._send import locks
from sidekiq_celery._send.clients import refuse
from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.payload import UNIQUE
from sidekiq_py.extension import Effect, Outgoing, Pool, write

MOST_SECONDS = 10 * 365 * 24 * 3600
"""A lock that lasts longer must be a mistake in the unit."""

_OPTIONS = ("unique_for", "unique_until", "unique_key")
_GIVEN = frozenset(_OPTIONS)
UNTIL = ("success", "start")

Mark = Mapping[str, Any]


class Uniqueness(NamedTuple):
    """
    The uniqueness that a call asks for.

    Args:
        seconds: How long the lock lasts at most, from when the task is due.
        until: `"success"` for the task's final end, or `"start"` for the beginning of its run.
        key: Returns the text by which two calls count as the same; None to compare their arguments.
    """

    seconds: float
    until: str
    key: Callable[[Any, Any], str] | None


class Lock(NamedTuple):
    """
    The lock of a call.

    Args:
        key: The lock's key in Redis.
        mark: The object in the payload that describes the lock.
    """

    key: str
    mark: dict[str, Any]


def asked_for(task: Any, options: dict[str, Any], *, is_free: bool) -> Uniqueness | None:
    """
    The uniqueness that a call asks for. Returns None if it asks for none.

    Args:
        task: The task; None if only its name is known.
        options: The call's options; those for uniqueness are removed.
        is_free: True if no workflow waits for the call, and it is not a retry.

    Raises:
        ValueError: `unique_for` is not a number of seconds, or `unique_until` has an unknown value.
    """
    own_seconds = getattr(task, "unique_for", None)
    if not own_seconds and _GIVEN.isdisjoint(options):
        return None
    seconds, until, key = [options.pop(name, None) for name in _OPTIONS]
    if seconds is None:
        seconds = own_seconds
    if not seconds or not is_free:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise ValueError(f"unique_for is {seconds!r}; give the seconds after which a lock that was left behind expires")
    until = until or getattr(task, "unique_until", None) or UNTIL[0]
    if until not in UNTIL:
        raise ValueError(f"unique_until is {until!r}; give 'success', the task's end for good, or 'start'")
    return Uniqueness(seconds, until, key or getattr(task, "unique_key", None))


def lock_of(unique: Uniqueness, name: str, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Lock:
    """
    The lock for a call.

    Args:
        task: The task; None if only its name is known.

    Raises:
        kombu.exceptions.EncodeError: An argument cannot be written as JSON, and there is no `unique_key`.
        TypeError: `unique_key` did not return a string.
    """
    if unique.key is None:
        text = _canonical(_bound(task, args, kwargs))
    else:
        text = unique.key(args, kwargs)
        if not isinstance(text, str):
            raise TypeError(f"unique_key of {name} returned {text!r}; it must return a string")
    # The name is always included, because two tasks may have the same text for their arguments.
    whole = json.dumps([name, text]).encode()
    digest = hashlib.blake2b(whole, digest_size=16).hexdigest()
    mark: dict[str, Any] = {"lock": digest, "for": unique.seconds}
    if unique.until != UNTIL[0]:
        mark["until"] = unique.until
    return Lock(lock_key(digest), mark)


def lock_key(digest: str) -> str:
    """The key of the string that holds the id of the task."""
    return f"sidekiq_py:unique:{digest}"


def mark_of(task_headers: Mapping[str, Any]) -> Mark | None:
    """The lock's mark in a payload. Returns None if there is no valid one."""
    mark = task_headers.get(UNIQUE)
    if mark is None:
        return None
    if type(mark) is not dict or type(mark.get("lock")) is not str or type(mark.get("for")) not in (int, float):
        return None
    return mark if 0 < mark["for"] <= MOST_SECONDS else None


def is_until_start(mark: Mark) -> bool:
    """Whether the lock is released when the run begins."""
    return mark.get("until") == "start"


def carried(task_headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that the next attempt's payload takes over from this one."""
    mark = mark_of(task_headers)
    return {} if mark is None or is_until_start(mark) else {UNIQUE: mark}


def release(pool: Pool, mark: Mark, task_id: str) -> None:
    """
    Release the lock as the run begins.

    Raises:
        RedisError: Redis cannot be reached. The task's end tries again.
    """
    released = locks.released(lock_key(mark["lock"]), task_id)
    pool.run(lambda link: write(link, [released]))


def at_end(mark: Mark, task_id: str, again: Sequence[Outgoing], now: float) -> Effect:
    """
    The effect that a run's end writes for the lock.

    Args:
        again: The next attempts. If there are any, the lock is kept, and lasts its full time from when they are due.
        now: Seconds since the epoch.
    """
    key = lock_key(mark["lock"])
    if not again or is_until_start(mark):
        return locks.released(key, task_id)
    due = max(now if job.score is None else float(job.score) for job in again)
    return locks.renewed(key, task_id, milliseconds(mark, due, now))


def milliseconds(mark: Mark, due: float, now: float) -> int:
    """How long a lock lasts from *now* if its task is *due* at that time; both are seconds since the epoch."""
    seconds: float = mark["for"]
    return math.ceil((seconds + max(0.0, due - now)) * 1000)


def _bound(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The arguments by parameter name, so that it does not matter how they are passed; defaults are omitted."""
    as_given = [list(args), dict(kwargs)]
    if task is None:
        return as_given
    try:
        signature = _signature(task.run)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return as_given
    return {name: value for name, value in bound.items() if not _is_default(signature.parameters[name].default, value)}


def _is_default(default: Any, value: Any) -> bool:
    return default is value or (type(default) is type(value) and bool(default == value))


@lru_cache(maxsize=1024)
def _signature(run: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(run)


def _canonical(value: Any) -> str:
    try:
        return json.dumps(to_plain(value), sort_keys=True)
    except (TypeError, ValueError) as error:
        refuse(error, f"{error}; a unique task whose arguments are not JSON needs a unique_key")
