"""Validates declarations: a job's name, its options and its time limits."""

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from math import isfinite
from types import MethodType
from typing import Any, TypeVar

from sidekiq_py import program
from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.hooks import returns_coroutine
from sidekiq_py.options import OF_JOBS, TIME_LIMITS, checked_value, with_custom

F = TypeVar("F", bound=Callable[..., Any])

OUR_OPTIONS = ("name", *TIME_LIMITS, "pool")
"""What the declaration of a job takes in addition to Sidekiq's options."""
OF_DECLARATIONS = OF_JOBS.union(OUR_OPTIONS)

# These belong to one push, not to a job.
_NOT_OPTIONS = ("class", "args", "jid", "created_at", "enqueued_at", "at")


def job_name(name: str | None, module: str, qualname: str) -> str:
    """
    The `class` in the job's payloads.

    Args:
        name: The declared name, or None for `module.qualname`.

    Raises:
        JobDeclarationError: No other process could find the job under that name.
    """
    if name is not None:
        if not isinstance(name, str) or not name:
            raise JobDeclarationError(f"name= of {module}.{qualname} is {name!r}; give a string, such as 'HardWorker'")
        return name
    if module == "__main__":
        raise JobDeclarationError(
            f"{qualname} is declared in __main__, which is a different module in every program; "
            f"move it to its own module, or give it name='{qualname}'"
        )
    if "<locals>" in qualname:
        raise JobDeclarationError(
            f"{module}.{qualname} is declared inside a function, where no other process could find it; "
            "move it to the top of its module, or give it a name="
        )
    return f"{module}.{qualname}"


def checked_block(block: F, name: str, arguments: str) -> F:
    """
    *block*, which a job's `retry_in` or `retries_exhausted` was given.

    Raises:
        JobDeclarationError: It cannot be called, or it is an `async def`.
    """
    if not callable(block):
        raise JobDeclarationError(f"{name} has {block!r}; put @….{name} above a function of {arguments}")
    if returns_coroutine(block):
        raise JobDeclarationError(
            f"{name} has {block!r}, an `async def`, which nothing would await; give a plain function of {arguments}"
        )
    return block


def checked_options(options: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """
    Sidekiq's options as payload keys, validated.

    Args:
        options: The declared options, in that order; keys under `custom` come after the others.
        owner: The job, for messages.

    Raises:
        JobDeclarationError: An option is invalid.
    """
    checked: dict[str, Any] = {}
    for name, value in with_custom(options).items():
        if not isinstance(name, str):
            raise JobDeclarationError(f"{owner} has the option {name!r}; option names are strings, such as 'queue'")
        if name in _NOT_OPTIONS:
            raise JobDeclarationError(f"{owner} has the option {name!r}, which belongs to one push and not to a job")
        checked[name] = checked_value(name, value, owner)
    if checked.get("status"):
        # Otherwise a program that only pushes looks for no extension, and none would write the status of a push.
        program.extensions.load_installed()
    return checked


def limit_seconds(name: str, value: Any, owner: str) -> float | None:
    """
    A time limit in seconds.

    Args:
        value: Seconds, a timedelta, or None for no limit.

    Raises:
        JobDeclarationError: It is not above 0.
    """
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not isfinite(seconds) or seconds <= 0:
        raise JobDeclarationError(f"{owner} has {name}={value!r}; give seconds above 0, or a timedelta")
    return float(seconds)


def time_limits(timeout: Any, hard_timeout: Any, owner: str) -> tuple[float | None, float | None]:
    """
    The soft and the hard time limit in seconds.

    Raises:
        JobDeclarationError: One of them is not above 0, or the soft limit could never be reached.
    """
    soft, hard = limit_seconds("timeout", timeout, owner), limit_seconds("hard_timeout", hard_timeout, owner)
    if soft is not None and hard is not None and soft > hard:
        raise JobDeclarationError(
            f"{owner} has timeout={timeout!r} and hard_timeout={hard_timeout!r}; make timeout the shorter one, or "
            "its process is killed before the soft limit is reached"
        )
    return soft, hard


def is_async(function: Callable[..., Any], owner: str) -> bool:
    """
    True if the job is an `async def`.

    Raises:
        JobDeclarationError: It is a generator, of which a run would only make an object.
    """
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise JobDeclarationError(f"{owner} has a yield, so calling it would run none of it; take the yield out")
    return iscoroutinefunction(function)


def is_method(function: Callable[..., Any]) -> bool:
    """True if it is declared in a class, so that a worker would have no object to call it on."""
    holder = function.__qualname__.rpartition(".")[0]
    # A method of an object has that object.
    code = None if isinstance(function, MethodType) else getattr(function, "__code__", None)
    parameters = () if code is None else code.co_varnames[: code.co_argcount]
    return holder != "" and not holder.endswith("<locals>") and parameters[:1] == ("self",)


def origin(module: str, qualname: str) -> str:
    """
    Where a job is declared. It is the same after a reload of the module, and for a module that is both run as
    `__main__` and imported.
    """
    place = getattr(sys.modules.get(module), "__file__", None) or module
    return f"{qualname} in {place}"
