"""
Values that JSON lacks, as kombu's json writes them: `{"__type__": "datetime", "__value__": "2026-01-02T03:04:05"}`.

Types that a program registers with kombu (`kombu.utils.json.register_type`) are known here. kombu is imported for the
first value that JSON lacks, and never for others.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ("beyond_json", "from_plain", "to_plain")

_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({list, dict})
_MARKED = {"__type__", "__value__"}


def to_plain(value: Any) -> Any:
    """
    *value* in the types that JSON has; tuples become lists, keys texts.

    Raises:
        TypeError: kombu's json cannot write it either.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list or kind is tuple:
        return [to_plain(item) for item in value]
    if kind is dict:
        return {key if type(key) is str else _key(key): to_plain(item) for key, item in value.items()}
    return _other(value)


def from_plain(value: Any) -> Any:
    """What `to_plain` was given, tuples aside."""
    kind = type(value)
    if kind is list:
        return [from_plain(item) if type(item) in _CONTAINERS else item for item in value]
    if kind is not dict:
        return value
    read = {key: from_plain(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    return _object_hook()(read) if read.keys() == _MARKED else read


def beyond_json(value: Any) -> Any:
    """
    For `json.JSONEncoder(default=…)`: a value that JSON lacks, as kombu writes it.

    Raises:
        TypeError: kombu's json cannot write it either.
    """
    return _encoder()(value)


def _other(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return to_plain(dict(value))
    return to_plain(beyond_json(value))


def _key(key: Any) -> str:
    """A key as json writes it."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return repr(int(key) if isinstance(key, int) else float(key))
    raise TypeError(f"keys must be str, int, float, bool or None, not {type(key).__name__}")


@lru_cache(maxsize=1)
def _encoder() -> Callable[[Any], Any]:
    from kombu.utils.json import JSONEncoder

    encode: Callable[[Any], Any] = JSONEncoder().default
    return encode


@lru_cache(maxsize=1)
def _object_hook() -> Callable[[dict[str, Any]], Any]:
    from kombu.utils.json import object_hook

    hook: Callable[[dict[str, Any]], Any] = object_hook
    return hook
