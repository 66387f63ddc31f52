"""
Exceptions as results hold them: the names of their class and their arguments.

Nothing is imported because a result names it: a class is looked up among the modules that are loaded, and made up
where it is not there. Celery's own exceptions bear Celery's names on the wire, so that its clients know them.
"""

import sys
from collections.abc import Callable
from typing import Any

from sidekiq_celery.exceptions import SecurityError, WorkerLostError
from sidekiq_celery.utils.serialization import (
    create_exception_cls,
    ensure_serializable,
    get_pickleable_exception,
    get_pickled_exception,
    safe_repr,
)

__all__ = ("EXCEPTION_ABLE_CODECS", "as_exception", "as_plain", "without_exits")

EXCEPTION_ABLE_CODECS = frozenset({"pickle"})
"""Serializers that take exceptions as they are."""

_OWN_MODULE = "sidekiq_celery.exceptions"
_CELERYS_MODULE = "celery.exceptions"
_BILLIARDS_MODULE = "billiard.exceptions"
# Where Celery has its exceptions from billiard.
_BILLIARDS = frozenset({"SoftTimeLimitExceeded", "TimeLimitExceeded", "WorkerLostError", "Terminated"})


def as_plain(exc: Any, serializer: str, encode: Callable[[Any], Any]) -> Any:
    """
    What is stored of an exception.

    Args:
        serializer: The name of what *encode* does.
        encode: Raises where it cannot write an argument, which is then stored as its `repr`.
    """
    if serializer in EXCEPTION_ABLE_CODECS:
        return get_pickleable_exception(exc)
    kind = type(exc)
    module = kind.__module__
    if module == _OWN_MODULE:
        module = _BILLIARDS_MODULE if kind.__name__ in _BILLIARDS else _CELERYS_MODULE
    return {
        "exc_type": getattr(kind, "__qualname__", kind.__name__),
        "exc_message": ensure_serializable(exc.args, encode),
        "exc_module": module,
    }


def as_exception(stored: Any, serializer: str) -> Any:
    """
    The exception that is stored; None where there is none.

    Raises:
        SecurityError: What it names is no exception.
        TypeError, ValueError: It is not well made.
    """
    if not stored:
        return None
    if isinstance(stored, BaseException):
        return get_pickled_exception(stored) if serializer in EXCEPTION_ABLE_CODECS else stored
    if not isinstance(stored, dict):
        try:
            stored = dict(stored)
        except TypeError as error:
            raise TypeError(
                "If the stored exception isn't an instance of BaseException, it must be a dictionary.\n"
                f"Instead got: {stored}"
            ) from error
    if "exc_type" not in stored:
        raise ValueError("Exception information must include the exception type")
    return _made(stored["exc_type"], stored.get("exc_module"), stored.get("exc_message", ""))


def without_exits(error: Any) -> Any:
    """
    *error*, but `WorkerLostError` for what is no `Exception`, such as the SystemExit of a task that calls `sys.exit()`.

    Raised where the result is read, that would pass by `except Exception` and end the reader. Celery's prefork pool
    stores the same, as the child that ran the task has exited.
    """
    if not isinstance(error, BaseException) or isinstance(error, Exception):
        return error
    lost = WorkerLostError(
        f"The task raised {safe_repr(error)}, which is no Exception and would end the program that reads the result"
    )
    # Its traceback is that of its cause, which is printed with it.
    lost.__cause__ = error
    return lost


def _made(name: str, module: str | None, message: Any) -> BaseException:
    kind = _found(name, module)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        # A result may come from anybody who can write to Redis, and could name any function to be called.
        shown = name if module is None else f"{module}.{name}"
        raise SecurityError(f"Expected an exception class, got {shown} with payload {message}")
    try:
        return kind(*message) if isinstance(message, tuple | list) else kind(message)
    except Exception:  # noqa: BLE001 - constructors of programs may raise anything
        return Exception(f"{kind}({message})")


def _found(name: str, module: str | None) -> Any:
    """What *module* has under *name*, which may be that of a class within a class; else a new class."""
    if module is None:
        return create_exception_cls(name, f"{__package__}.base")
    own = _OWN_MODULE if module == _CELERYS_MODULE or (module == _BILLIARDS_MODULE and name in _BILLIARDS) else module
    try:
        found: Any = sys.modules[own]
        for part in name.split("."):
            found = getattr(found, part)
    except (KeyError, AttributeError):
        return create_exception_cls(name, _OWN_MODULE)
    return found
