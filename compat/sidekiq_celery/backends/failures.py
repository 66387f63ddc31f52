"""
Exceptions as results store them: the name of the class, and the arguments.

Nothing is imported because a result names it, except `kombu.exceptions`, which Celery always loads. A class is looked
up in the modules that are loaded already, and created if it is not found there. Celery's own exceptions keep Celery's
names on the wire, so that its clients recognize them.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sidekiq_celery.exceptions import _FROM_BILLIARD, SecurityError, WorkerLostError
from sidekiq_celery.utils.serialization import (
    create_exception_cls,
    ensure_serializable,
    get_pickleable_exception,
    get_pickled_exception,
    itermro,
    safe_repr,
    unwanted_base_classes,
)

EXCEPTION_ABLE_CODECS = frozenset({"pickle"})
"""Serializers that can store an exception object as it is."""

_OWN_MODULE = "sidekiq_celery.exceptions"
_CELERYS_MODULE = "celery.exceptions"
_BILLIARDS_MODULE = "billiard.exceptions"
_KOMBUS_MODULE = "kombu.exceptions"


def as_plain(exc: Any, serializer: str, encode: Callable[[Any], Any]) -> Any:
    """
    Convert an exception for storage.

    Args:
        serializer: The name of the serializer that *encode* uses.
        encode: Raises if it cannot encode an argument, which is then stored as its `repr`.
    """
    if serializer in EXCEPTION_ABLE_CODECS:
        return get_pickleable_exception(exc)
    kind = type(exc)
    module = kind.__module__
    if module == _OWN_MODULE:
        module = _BILLIARDS_MODULE if kind.__name__ in _FROM_BILLIARD else _CELERYS_MODULE
    return {
        "exc_type": getattr(kind, "__qualname__", kind.__name__),
        "exc_message": ensure_serializable(exc.args, encode),
        "exc_module": module,
    }


def as_exception(stored: Any, serializer: str) -> Any:
    """
    Rebuild a stored exception. Returns None if nothing is stored.

    Raises:
        SecurityError: The stored name does not belong to an exception.
        TypeError, ValueError: The stored value is malformed.
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
    Replace an error that is not an `Exception`, such as the SystemExit of a task that calls `sys.exit()`.

    The replacement is `WorkerLostError`. If the original were raised where the result is read, it would slip past
    `except Exception` and end the reader. For SystemExit and KeyboardInterrupt, Celery's prefork pool stores the same,
    in the same words, as the child that ran the task has exited; it stores others as they are.
    """
    if not isinstance(error, BaseException) or isinstance(error, Exception):
        return error
    lost = WorkerLostError(_loss_text(error))
    # The traceback is on the cause, and is printed with it.
    lost.__cause__ = error
    return lost


def _loss_text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        # Without a code, Python exits with 0, and with 1 for a message.
        code = 0 if error.code is None else error.code
        return f"Worker exited prematurely: exitcode {int(code) if isinstance(code, int) else 1}."
    if isinstance(error, KeyboardInterrupt):
        return "Worker exited prematurely: KeyboardInterrupt."
    return (
        f"The task raised {safe_repr(error)}, which is not an Exception and would end the program that reads the result"
    )


def _made(name: str, module: str | None, message: Any) -> BaseException:
    kind = _found(name, module)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        # Anyone who can write to Redis can write a result, and could name any function to be called.
        shown = name if module is None else f"{module}.{name}"
        raise SecurityError(f"Expected an exception class, got {shown} with payload {message}")
    args = message if isinstance(message, tuple | list) else [message]
    # A class whose constructor formats its message takes other arguments than it stores. Programs that catch a base
    # class of it still do: Celery's worker stores the nearest one that takes them.
    bases = [base for base in itermro(kind, unwanted_base_classes) if issubclass(base, BaseException)]
    description = f"{kind}({message})"
    for candidate in dict.fromkeys((kind, *bases)):
        # `pydantic.ValidationError`, a ValueError, stores no arguments. Other base classes may want one.
        for own in [args] if args or candidate is kind else [args, (description,)]:
            try:
                made = candidate(*own)
                # A base class alone would not say what failed.
                if candidate is not kind and not made.args:
                    made.args = (description,)
            except Exception:  # noqa: BLE001 - constructors of programs may raise anything
                continue
            # A `__new__` may return anything.
            if isinstance(made, BaseException):
                return made
    return Exception(description)


def _found(name: str, module: str | None) -> Any:
    """Look up *name* in *module*; a dotted name is a nested class. Creates a new class if there is none."""
    if module is None:
        return create_exception_cls(name, f"{__package__}.base")
    own = (
        _OWN_MODULE if module == _CELERYS_MODULE or (module == _BILLIARDS_MODULE and name in _FROM_BILLIARD) else module
    )
    if own == _KOMBUS_MODULE:
        # A program that only sends and reads has not loaded it, and may do so in order to look at the error.
        import_module(_KOMBUS_MODULE)
    try:
        first, *nested = name.split(".")
        # The `__getattr__` of a module may import what it is asked for, and a property may do anything.
        found: Any = sys.modules[own].__dict__[first]
        for part in nested:
            found = found.__dict__[part] if isinstance(found, type) else None
    except (KeyError, AttributeError):
        return create_exception_cls(name, _OWN_MODULE)
    return create_exception_cls(name, _OWN_MODULE) if found is None else found
