"""Converts exceptions and values to forms that can be sent."""

import datetime
import numbers
import pickle
import sys
from base64 import b64decode as _base64decode
from base64 import b64encode as _base64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any, NoReturn

__all__ = (
    "UnpickleableExceptionWrapper",
    "create_exception_cls",
    "find_pickleable_exception",
    "get_pickleable_etype",
    "get_pickleable_exception",
    "get_pickled_exception",
    "jsonify",
    "raise_with_context",
    "strtobool",
    "subclass_exception",
)

# An exception is never reduced to these, because they say nothing.
unwanted_base_classes = (Exception, BaseException, object)

STRTOBOOL_DEFAULT_TABLE = {
    "false": False,
    "no": False,
    "0": False,
    "off": False,
    "true": True,
    "yes": True,
    "1": True,
    "on": True,
}


def safe_repr(value: Any) -> str:
    """Return `repr(value)`, or a text about its error."""
    try:
        return repr(value)
    except Exception as exc:  # noqa: BLE001 - a broken __repr__ may raise anything
        return unrepresentable(value, exc)


def unrepresentable(value: Any, error: Exception) -> str:
    """Return the text shown in place of a value whose representation raises *error*."""
    try:
        why = repr(error)
    except Exception:  # noqa: BLE001 - it has a broken __repr__ itself
        why = type(error).__name__
    return f"<Unrepresentable {type(value)!r}: {why}>"


def subclass_exception(name: str, parent: type[BaseException], module: str) -> type[BaseException]:
    """Create an exception class."""
    return type(name, (parent,), {"__module__": module})


def create_exception_cls(name: str, module: str, parent: type[BaseException] | None = None) -> type[BaseException]:
    """Create an exception class that replaces one which cannot be imported here."""
    return subclass_exception(name, parent or Exception, module)


def itermro(cls: type, stop: Iterable[type]) -> Iterator[type]:
    """Yield *cls* and its bases, up to the first one in *stop*."""
    return takewhile(lambda base: base not in tuple(stop), cls.__mro__)


def find_pickleable_exception(
    exc: BaseException, loads: Callable[[bytes], Any] = pickle.loads, dumps: Callable[[Any], bytes] = pickle.dumps
) -> Any:
    """Convert *exc* to its nearest base class that can be pickled. Returns None if only `Exception` is left."""
    args = getattr(exc, "args", [])
    for base in itermro(type(exc), unwanted_base_classes):
        try:
            candidate = base(*args)
            loads(dumps(candidate))
        except Exception:  # noqa: BLE001 - constructors and reducers may raise anything
            continue
        return candidate
    return None


def ensure_serializable(items: Iterable[Any], encoder: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Keep each item that *encoder* accepts, and replace others with their `repr`."""
    safe = []
    for item in items:
        try:
            encoder(item)
        except Exception:  # noqa: BLE001 - encoders may raise anything
            safe.append(safe_repr(item))
        else:
            safe.append(item)
    return tuple(safe)


class UnpickleableExceptionWrapper(Exception):
    """
    Stands in for an exception that cannot be pickled, and carries its names.

    Args:
        exc_module, exc_cls_name, exc_args: The exception's module, class name and arguments.
        text: The exception's `repr`.
    """

    def __init__(self, exc_module: str, exc_cls_name: str, exc_args: Iterable[Any], text: str | None = None) -> None:
        args = ensure_serializable(exc_args, lambda value: pickle.loads(pickle.dumps(value)))
        self.exc_module = exc_module
        self.exc_cls_name = exc_cls_name
        self.exc_args = args
        self.text = text
        super().__init__(exc_module, exc_cls_name, args, text)

    def restore(self) -> BaseException:
        """Create an exception with those names."""
        return create_exception_cls(self.exc_cls_name, self.exc_module)(*self.exc_args)

    def __str__(self) -> str:
        return self.text or ""

    @classmethod
    def from_exception(cls, exc: BaseException) -> "UnpickleableExceptionWrapper":
        """Wrap *exc*."""
        wrapped = cls(type(exc).__module__, type(exc).__name__, getattr(exc, "args", []), safe_repr(exc))
        return wrapped.with_traceback(exc.__traceback__)


def get_pickleable_exception(exc: Any) -> Any:
    """Return *exc* if it can be pickled, else the nearest exception that can."""
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:  # noqa: BLE001 - reducers may raise anything
        return find_pickleable_exception(exc) or UnpickleableExceptionWrapper.from_exception(exc)
    return exc


def get_pickleable_etype(
    cls: Any, loads: Callable[[bytes], Any] = pickle.loads, dumps: Callable[[Any], bytes] = pickle.dumps
) -> Any:
    """Return *cls* if it can be pickled, else `Exception`."""
    try:
        loads(dumps(cls))
    except Exception:  # noqa: BLE001 - reducers may raise anything
        return Exception
    return cls


def get_pickled_exception(exc: Any) -> Any:
    """Undo `get_pickleable_exception`, as far as possible."""
    return exc.restore() if isinstance(exc, UnpickleableExceptionWrapper) else exc


def b64encode(s: bytes | str) -> str:
    """Encode as base64 text."""
    return _base64encode(s.encode() if isinstance(s, str) else s).decode()


def b64decode(s: bytes | str) -> bytes:
    """Decode base64."""
    return _base64decode(s)


def strtobool(term: Any, table: dict[str, bool] | None = None) -> Any:
    """
    Convert a text to a boolean. Anything else stays as it is.

    Raises:
        TypeError: The text is not one of true, yes, on, 1, false, no, off and 0.
    """
    if not isinstance(term, str):
        return term
    try:
        return (table or STRTOBOOL_DEFAULT_TABLE)[term.lower()]
    except KeyError:
        raise TypeError(f"Cannot coerce {term!r} to type bool; write true or false") from None


def _time_text(value: datetime.date | datetime.time) -> str:
    if isinstance(value, datetime.datetime | datetime.time):
        text = value.isoformat(timespec="milliseconds" if value.microsecond else "auto")
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    return value.isoformat()


def jsonify(
    obj: Any,
    builtin_types: tuple[type, ...] = (numbers.Real, str),
    key: Any = None,
    keyfilter: Callable[[Any], Any] | None = None,
    unknown_type_filter: Callable[[Any], Any] | None = None,
) -> Any:
    """
    Convert *obj* to types that JSON has.

    Raises:
        ValueError: A type is unknown, and there is no *unknown_type_filter*.
    """
    again = partial(jsonify, builtin_types=builtin_types, keyfilter=keyfilter, unknown_type_filter=unknown_type_filter)
    if hasattr(obj, "as_dict") and type(obj).__module__.startswith("kombu."):
        obj = obj.as_dict(recurse=True)
    if obj is None or isinstance(obj, builtin_types):
        return obj
    if isinstance(obj, tuple | list):
        return [again(value, key=key) for value in obj]
    if isinstance(obj, dict):
        return {name: again(value, key=name) for name, value in obj.items() if not keyfilter or keyfilter(name)}
    if isinstance(obj, datetime.date | datetime.time):
        return _time_text(obj)
    if isinstance(obj, datetime.timedelta):
        return str(obj)
    if unknown_type_filter is None:
        raise ValueError(f"Unsupported type: {type(obj)!r} {obj!r} (parent: {key})")
    return unknown_type_filter(obj)


def raise_with_context(exc: BaseException) -> NoReturn:
    """Raise *exc* from the exception being handled, unless it is that exception itself."""
    handled = sys.exc_info()[1]
    if handled is exc:
        raise exc
    raise exc from handled
