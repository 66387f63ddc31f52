"""
Values of types that JSON lacks, in kombu's format: `{"__type__": "datetime", "__value__": "2026-01-02T03:04:05"}`.

Types that a program registers with kombu (`kombu.utils.json.register_type`) are supported. kombu is imported for the
first value that JSON lacks, and not before.

Python's json writes NaN and Infinity in a form that no other parser reads. When a workflow passes them on, they are
written in a format of our own: `{"__type__": "float", "__value__": "nan"}`.
"""

from collections.abc import Callable
from typing import Any

from sidekiq_py.payloads import loads

_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({list, dict})
_MARKED = {"__type__", "__value__"}
# Levels of a payload around a value: its object, the arguments, a chord's results, and those added by nested groups.
_LEVELS_AROUND = 10
# No JSON parser accepts deeper nesting. A value that goes deeper may also be circular, whatever Python's own limit is.
_MOST_LEVELS = 300
# A text with no more lists and objects than this cannot be nested too deeply.
_SURELY_FLAT = 90
_FLOAT = "float"
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def to_plain(value: Any) -> Any:
    """
    Convert *value* to the types that JSON has; tuples become lists, keys become strings.

    Raises:
        TypeError: Even kombu's json cannot write it.
    """
    return _plain(value, _MOST_LEVELS)


def _plain(value: Any, levels: int) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if levels == 0:
        raise TypeError("a value contains itself, or is nested too deep for JSON")
    if kind is list or kind is tuple:
        return [_plain(item, levels - 1) for item in value]
    if kind is dict:
        return {key if type(key) is str else _key(key): _plain(item, levels - 1) for key, item in value.items()}
    return _other(value, levels - 1)


def from_plain(value: Any) -> Any:
    """Restore the value that `to_plain` converted, except for tuples."""
    kind = type(value)
    if kind is list:
        return [from_plain(item) if type(item) in _CONTAINERS else item for item in value]
    if kind is not dict:
        return value
    read = {key: from_plain(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    return _unmarked(read) if read.keys() == _MARKED else read


def with_marked_floats(value: Any) -> Any:
    """
    Like `to_plain`, but with marks for NaN and Infinity. Returns None if the value contains neither.

    Raises:
        TypeError: As `to_plain`.
    """
    plain = to_plain(value)
    marked = _mapped(plain, lambda one: _marked(one) if type(one) is float and one - one != 0.0 else one)
    return None if marked == plain else marked


def with_bare_floats(plain: Any) -> Any:
    """Convert plain values to Celery's form, which has bare NaN and Infinity instead of our marks."""
    return _mapped(plain, lambda one: _float_of(one, one) if type(one) is dict else one)


def beyond_json(value: Any) -> Any:
    """
    For `json.JSONEncoder(default=…)`: convert a value that JSON lacks to kombu's format.

    Raises:
        TypeError: Even kombu's json cannot write it.
    """
    from kombu.utils.json import JSONEncoder

    return JSONEncoder().default(value)


def for_payload(text: str) -> bytes:
    """
    Encode JSON that Python has written for the arguments of a payload, which Ruby reads too.

    Raises:
        UnicodeEncodeError: It contains a lone surrogate.
        JsonParseError: It contains NaN or Infinity, or is nested too deeply.
    """
    raw = text.encode()
    if b"NaN" in raw or b"Infinity" in raw or raw.count(b"[") + raw.count(b"{") > _SURELY_FLAT:
        loads(b"[" * _LEVELS_AROUND + raw + b"]" * _LEVELS_AROUND)
    return raw


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply *change* to every part of *value*, inner parts first."""
    if type(value) is list:
        return [_mapped(item, change) for item in value]
    if type(value) is dict:
        return change({key: _mapped(item, change) for key, item in value.items()})
    return change(value)


def _marked(value: float) -> dict[str, str]:
    return {"__type__": _FLOAT, "__value__": str(value)}


def _unmarked(read: dict[str, Any]) -> Any:
    from kombu.utils.json import object_hook

    found = _float_of(read, None)
    return object_hook(read) if found is None else found


def _float_of(read: dict[str, Any], default: Any) -> Any:
    """The float in our own mark. A program may have registered a type of the same name with other values."""
    if read.keys() != _MARKED or read["__type__"] != _FLOAT or type(read["__value__"]) is not str:
        return default
    return _FLOATS.get(read["__value__"], default)


def _other(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(item, levels) for item in value]
    if isinstance(value, dict):
        return _plain(dict(value), levels)
    return _plain(beyond_json(value), levels)


def _key(key: Any) -> str:
    """A key in the form that json writes."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return repr(int(key) if isinstance(key, int) else float(key))
    raise TypeError(f"keys must be str, int, float, bool or None, not {type(key).__name__}")
