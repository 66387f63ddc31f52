"""
Sidekiq's options by name: typed, so that editors complete them and checkers find a misspelled one, and looked at when a
program runs without a checker.

Sidekiq lets any key through into a payload, for middleware to read, and so do we: an unknown name is kept, with a
warning.
`custom={"tenant": 5}` passes keys of a program's own without a warning.
"""

import re
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from sidekiq_py.errors import JobDeclarationError, UnknownOptionWarning

# "quueue" is as near to "queue" as 0.91, "retires" to "retry" as 0.67, and "tenant" to "tags" as 0.4.
_NEAR = 0.8
_SIMILAR = 0.6

# Whoever reads a log line or types a flag cannot see these, and `-q "a b"` is a queue that nobody pushes to.
_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


class JobOptions(TypedDict, total=False):
    """
    What `@job`, `ruby_job` and `set` take, each as Sidekiq's `sidekiq_options` knows it.

    Attributes:
        queue: Where it is pushed.
        retry: True, False, or how many retries.
        retry_for: Retry for so long: seconds or a timedelta (Sidekiq 7.1.3 and later).
        retry_queue: Another queue for the retries.
        dead: False: no place in the dead set when no retry is left.
        backtrace: True, or how many lines of it to keep with a retry.
        tags: Shown in the Web UI.
        log_level: The level of this job's own log lines.
        display_class: The name that is shown instead of the class.
        profile: Who asks for a profile (Sidekiq 8, Ruby workers).
        profiler_options: For that profile.
        expires_in: Sidekiq Pro: seconds after which it is not to run any more.
        unique_for: Sidekiq Enterprise: seconds for which it is unique.
        unique_until: Sidekiq Enterprise: "start" or "success".
        encrypt: Sidekiq Enterprise: its last argument is encrypted.
        status: True: its life is written under the keys of sidekiq-status, and `current_job().progress(…)` with it.
        custom: Keys of your own, for middleware to read.
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
    What `set` takes besides.

    Attributes:
        wait: Schedules it: seconds from now, or a timedelta.
        wait_until: Schedules it: seconds since the epoch, or an aware datetime.
        at: As `wait_until`; for `perform_bulk` also one for each.
        jid: Its id.
        pool: Another Redis to push it to.
        sync: True runs it here.
    """

    wait: float | timedelta | None
    wait_until: float | datetime | None
    at: float | datetime | Sequence[float]
    jid: str
    pool: Any
    sync: bool


OF_JOBS = frozenset(JobOptions.__annotations__)
# Besides the typed ones: what a payload may bear that another program has made.
OF_SET = frozenset(SetOptions.__annotations__) | {"class", "args", "wrapped", "created_at", "bid", "cattr"}


def with_custom(options: Mapping[str, Any]) -> dict[str, Any]:
    """
    The keys as they stand in a payload: those under `custom` beside the others.

    Raises:
        JobDeclarationError: `custom` is no mapping.
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
    Warn of each of *names* that is none of *known*, where the program names it.

    Args:
        owner: Of the options, for the message.
        only_near: Only of those that look like a slip of the finger; where names of one's own are usual.
    """
    for name in names:
        if name in known or not isinstance(name, str):
            continue
        near = closest(name, known, least=_NEAR if only_near else _SIMILAR)
        if near is None and only_near:
            continue
        hint = f": did you mean {near!r}?" if near else "."
        warnings.warn(
            f"{owner} has the option {name!r}, which Sidekiq does not know{hint} For a key of your own write "
            f"custom={{{name!r}: …}}",
            UnknownOptionWarning,
            stacklevel=_level_of_the_program(),
        )


def unseen_in(queue: str) -> str | None:
    """The first space, other white space or control character in the name of a queue, as Python writes it, or None."""
    found = _UNSEEN.search(queue)
    return None if found is None else repr(found[0])


def closest(name: str, known: Collection[str], *, least: float = _NEAR) -> str | None:
    """The one of *known* that *name* was probably meant to be, or None."""
    from difflib import get_close_matches  # once something is misspelled

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=least)), None)


def _level_of_the_program() -> int:
    """How far up the first frame is that is not this library's, counted from whoever calls `warnings.warn`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("sidekiq_py.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
