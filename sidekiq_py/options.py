"""
Sidekiq's job options by name. They are typed, so editors complete them and type checkers find misspelled names; names
are also checked at run time.

Sidekiq writes any option to the payload, for middleware to read, and so do we: an unknown name is kept, with a warning.
`custom={"tenant": 5}` passes a program's own keys without a warning.
"""

import re
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from sidekiq_py.errors import ArgumentError, JobDeclarationError, UnknownOptionWarning
from sidekiq_py.wire.json_dialect import check_args

# The similarity of "quueue" to "queue" is 0.91, of "retires" to "retry" 0.67, and of "tenant" to "tags" 0.4.
_NEAR = 0.8
_SIMILAR = 0.6

# What Celery calls them. A job that was meant to wait is pushed at once.
_ELSEWHERE = {"countdown": "wait", "eta": "wait_until", "max_retries": "retry"}

# These characters are invisible in log lines and flags, and nobody pushes to a queue such as `-q "a b"`.
_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

QUEUE_OPTIONS = ("queue", "retry_queue")
"""The options that name a queue."""

TIME_LIMITS = ("timeout", "hard_timeout")
"""What a job declares beside its options. Nothing else can set them, because they are not part of the payload."""


class JobOptions(TypedDict, total=False):
    """
    The options of `@job`, `ruby_job` and `set`, with the meaning that they have in Sidekiq's `sidekiq_options`.

    Attributes:
        queue: The queue to push the job to.
        retry: True, False, or the number of retries.
        retry_for: How long to keep retrying, as seconds or a timedelta (Sidekiq 7.1.3 and later).
        retry_queue: A different queue for retries.
        dead: False keeps the job out of the dead set when no retry is left.
        backtrace: True, or the number of backtrace lines to keep with a retry.
        tags: Tags to show in the Web UI.
        log_level: The level for the job's own log lines.
        display_class: The name to show instead of the class.
        profile: Who asks for a profile (Sidekiq 8, Ruby workers).
        profiler_options: Options of the profiler.
        expires_in: Sidekiq Pro: seconds after which the job must not run any more.
        unique_for: Sidekiq Enterprise: seconds for which the job is unique.
        unique_until: Sidekiq Enterprise: "start" or "success".
        encrypt: Sidekiq Enterprise: encrypts the last argument.
        status: True records the job's status and its `current_job().progress(…)` under the keys of sidekiq-status.
        custom: Your own keys, for middleware to read.
    """

    queue: str
    retry: bool | int | None
    retry_for: float | timedelta
    retry_queue: str
    dead: bool
    backtrace: bool | int
    tags: Sequence[str]
    log_level: str | int
    display_class: str
    profile: str
    profiler_options: Mapping[str, Any]
    expires_in: float
    unique_for: float | bool
    unique_until: str
    encrypt: bool
    status: bool
    custom: Mapping[str, Any]


class SetOptions(JobOptions, total=False):
    """
    The additional options of `set`.

    Attributes:
        wait: How long to wait before the job runs, as seconds or a timedelta.
        wait_until: When to run the job, as seconds since the epoch or a timezone-aware datetime.
        at: The same as `wait_until`; `perform_bulk` also accepts a list with a time for each job.
        jid: The job's id.
        pool: Another Redis to push the job to.
        sync: True runs the job here, in this process.
    """

    wait: float | timedelta | None
    wait_until: float | datetime | None
    at: float | datetime | Sequence[float]
    jid: str
    pool: Any
    sync: bool


OF_JOBS = frozenset(JobOptions.__annotations__)
# The typed options, and further keys that a payload made by another program may have.
OF_SET = frozenset(SetOptions.__annotations__) | {"class", "args", "wrapped", "created_at", "bid", "cattr"}


def with_custom(options: Mapping[str, Any]) -> dict[str, Any]:
    """
    The options as payload keys: the keys under `custom` are merged with the others.

    Raises:
        JobDeclarationError: `custom` is not a mapping.
    """
    if "custom" not in options:
        return dict(options)
    merged = dict(options)
    own = merged.pop("custom")
    if not isinstance(own, Mapping):
        raise JobDeclarationError(f"custom is {own!r}; give a mapping of keys to values, as custom={{'tenant': 5}}")
    return {**merged, **own}


def warn_of_unknown(names: Collection[Any], known: Collection[str], owner: str, *, only_near: bool = False) -> None:
    """
    Warn about each of *names* that is not in *known*. The warning points at the program's own line.

    Args:
        owner: Who has the options, for the message.
        only_near: Only warn about names that look like typos. Use it where a program's own names are common.
    """
    for name in names:
        if name in known or not isinstance(name, str):
            continue
        if name in TIME_LIMITS:
            _warn(
                f"{owner} has the option {name!r}, which has no effect there. Declare the time limit of a Python job "
                f"with it, as @job({name}=…); for a key of your own write custom={{{name!r}: …}}"
            )
            continue
        near = closest(name, known, least=_NEAR if only_near else _SIMILAR)
        if near is None and only_near:
            continue
        if near is None and _ELSEWHERE.get(name) in known:
            near = _ELSEWHERE[name]
        hint = f": did you mean {near!r}?" if near else "."
        _warn(
            f"{owner} has the option {name!r}, which Sidekiq does not know{hint} For a key of your own write "
            f"custom={{{name!r}: …}}"
        )


def _warn(message: str) -> None:
    warnings.warn(message, UnknownOptionWarning, stacklevel=_level_of_the_program())


def complaint_about_queue(name: object, beginning: str) -> str | None:
    """
    The message of the error about a queue name that could not be given as a flag, or None if it could.

    Args:
        beginning: The start of the message.
    """
    unseen = _UNSEEN.search(name) if isinstance(name, str) else None
    if unseen is None:
        return None
    return (
        f"{beginning}, with the character {unseen[0]!r}; queue names must not have whitespace or control characters; "
        "use a name such as 'low-priority'"
    )


def refuse_unseen(queue: object, beginning: str) -> None:
    """
    Refuse a queue name that could not be given as a flag.

    Args:
        beginning: The start of the message.

    Raises:
        JobDeclarationError: The name has whitespace or control characters.
    """
    complaint = complaint_about_queue(queue, beginning)
    if complaint is not None:
        raise JobDeclarationError(complaint)


def checked_value(name: str, value: Any, owner: str) -> Any:
    """
    The value of an option as it is written to the payload.

    Args:
        owner: Who has the option, for messages.

    Raises:
        JobDeclarationError: It is invalid.
    """
    if name in QUEUE_OPTIONS and (not isinstance(value, str) or not value):
        _refuse(owner, name, value, "the queue's name")
    if name in QUEUE_OPTIONS:
        refuse_unseen(value, f"{owner} has {name}={value!r}")
    if name == "retry" and (not isinstance(value, (bool, int, type(None))) or (value or 0) < 0):
        _refuse(owner, name, value, "True, False, or how many retries")
    if name == "backtrace" and (not isinstance(value, (bool, int)) or value < 0):
        _refuse(owner, name, value, "True, False, or how many lines")
    if name == "dead" and not isinstance(value, bool):
        _refuse(owner, name, value, "True or False")
    if name == "tags":
        if isinstance(value, Iterable) and not isinstance(value, str):
            value = list(value)
        if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
            _refuse(owner, name, value, "a list of strings")
    if name == "retry_for":
        value = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1_000_000_000:
            _refuse(owner, name, value, "seconds, such as 48 * 3600, or a timedelta")
        value = int(value)
    try:
        check_args([value], name)
    except ArgumentError as error:
        raise JobDeclarationError(f"{owner} has an option that JSON cannot carry: {error}") from None
    return value


def _refuse(owner: str, name: str, value: Any, wanted: str) -> None:
    raise JobDeclarationError(f"{owner} has {name}={value!r}; give {wanted}")


def closest(name: str, known: Collection[str], *, least: float = _NEAR) -> str | None:
    """The name in *known* that *name* was probably meant to be, or None."""
    from difflib import get_close_matches  # only needed once something is misspelled

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=least)), None)


def _level_of_the_program() -> int:
    """The `stacklevel` of the first frame outside this library, counted from the caller of `warnings.warn`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("sidekiq_py.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
