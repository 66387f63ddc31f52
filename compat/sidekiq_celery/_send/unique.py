"""
Unique tasks: `unique_for=seconds` keeps a call from being sent while the same one is there already.

`sidekiq_py:unique:<digest of the call>` holds the id of the task that waits, is scheduled, is tried again or runs. The
script that enqueues the task takes it, and the one that ends the task releases it; or it expires `unique_for` after the
task was due. The payload bears it as `celery.unique`: `lock`, the digest; `for`, seconds; `until`, if it is `"start"`.

What a workflow calls (steps, members of a group or chord, callbacks) is sent in any case and takes no lock: something
waits for its end.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sidekiq_celery._send import locks
from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.payload import UNIQUE
from sidekiq_py.extension import Effect, Outgoing, Pool, write

__all__ = (
    "Lock", "Mark", "Uniqueness", "asked_for", "at_end", "carried", "is_until_start", "lock_key", "lock_of", "mark_of",
    "milliseconds", "release",
)  # fmt: skip

MOST_SECONDS = 10 * 365 * 24 * 3600
"""A lock that lasts longer is a mistake in the unit."""

_OPTIONS = ("unique_for", "unique_until", "unique_key")
_GIVEN = frozenset(_OPTIONS)
UNTIL = ("success", "start")

Mark = Mapping[str, Any]


class Uniqueness(NamedTuple):
    """
    What a call asks for.

    Args:
        seconds: For how long at most, from when it is due.
        until: `"success"`, its end for good, or `"start"`, the begin of its run.
        key: What makes two calls the same; None: their arguments.
    """

    seconds: float
    until: str
    key: Callable[[Any, Any], str] | None


class Lock(NamedTuple):
    """
    The lock of a call.

    Args:
        key: In Redis.
        mark: What its payload bears.
    """

    key: str
    mark: dict[str, Any]


def asked_for(task: Any, options: dict[str, Any], *, is_free: bool) -> Uniqueness | None:
    """
    Whether a call is to be unique; None if not.

    Args:
        task: None where only its name is known.
        options: Of the call; what concerns this is taken out.
        is_free: It stands alone: no workflow waits for it, and it is no other try.

    Raises:
        ValueError: `unique_for` is no number of seconds, or `unique_until` is something unknown.
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
    The lock of a call.

    Args:
        task: None where only its name is known.

    Raises:
        kombu.exceptions.EncodeError: JSON cannot carry an argument, and there is no `unique_key`.
        TypeError: It returned no text.
    """
    if unique.key is None:
        text = _canonical(_bound(task, args, kwargs))
    else:
        text = unique.key(args, kwargs)
        if not isinstance(text, str):
            raise TypeError(f"unique_key of {name} returned {text!r}; it must return a text")
    # The name comes along in any case: what two tasks say of their arguments may be the same text.
    whole = json.dumps([name, text]).encode()
    digest = hashlib.blake2b(whole, digest_size=16).hexdigest()
    mark: dict[str, Any] = {"lock": digest, "for": unique.seconds}
    if unique.until != UNTIL[0]:
        mark["until"] = unique.until
    return Lock(lock_key(digest), mark)


def lock_key(digest: str) -> str:
    """The string that holds the id of the task."""
    return f"sidekiq_py:unique:{digest}"


def mark_of(task_headers: Mapping[str, Any]) -> Mark | None:
    """The mark of a payload; None if it has none that can be read."""
    mark = task_headers.get(UNIQUE)
    if mark is None:
        return None
    if type(mark) is not dict or type(mark.get("lock")) is not str or type(mark.get("for")) not in (int, float):
        return None
    return mark if 0 < mark["for"] <= MOST_SECONDS else None


def is_until_start(mark: Mark) -> bool:
    """The lock is released when the run begins."""
    return mark.get("until") == "start"


def carried(task_headers: Mapping[str, Any]) -> dict[str, Any]:
    """What the next try's payload takes over from the one before."""
    mark = mark_of(task_headers)
    return {} if mark is None or is_until_start(mark) else {UNIQUE: mark}


def release(pool: Pool, mark: Mark, task_id: str) -> None:
    """
    Release the lock as the run begins.

    Raises:
        RedisError: Redis was not reached. The task's end tries again.
    """
    released = locks.released(lock_key(mark["lock"]), task_id)
    pool.run(lambda link: write(link, [released]))


def at_end(mark: Mark, task_id: str, again: Sequence[Outgoing], now: float) -> Effect:
    """
    What a run's end writes.

    Args:
        again: The next tries; for these the lock is kept, and lasts as long again from when they are due.
        now: Seconds since the epoch.
    """
    key = lock_key(mark["lock"])
    if not again or is_until_start(mark):
        return locks.released(key, task_id)
    due = max(now if job.score is None else float(job.score) for job in again)
    return locks.renewed(key, task_id, milliseconds(mark, due, now))


def milliseconds(mark: Mark, due: float, now: float) -> int:
    """For how long from *now* on a lock lasts whose task is *due* then; both are seconds since the epoch."""
    seconds: float = mark["for"]
    return math.ceil((seconds + max(0.0, due - now)) * 1000)


def _bound(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The arguments by their parameters, so that it does not matter how they are given; defaults are left out."""
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
        from kombu.exceptions import EncodeError

        raise EncodeError(f"{error}; a unique task whose arguments are not JSON needs a unique_key") from error
