"""
Converts arguments that are not JSON: for pushes whose strict check is off or only warns, and for display to people.
"""

import enum
import json
from collections.abc import Mapping
from typing import Any

from sidekiq_py.wire.json_writer import write_for_display


def loosen(value: Any) -> Any:
    """
    The plain JSON value that is closest to *value*. Ruby's `JSON.generate` does the same with `to_s`.

    Subclasses of str, int, float, list and dict become plain, tuples and sets become lists, an Enum becomes its value,
    bytes are decoded as UTF-8, and everything else becomes its `str`. NaN, lone surrogates and circular references are
    kept, so that `dump_args` refuses them, as Ruby does.

    Args:
        value: The arguments.
    """
    return _loosen(value, ())


def json_text(value: Any) -> str:
    """*value* as JSON for people and programs that only read it; anything that is not JSON is written as its `str`."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        # An integer of more than 4,300 digits.
        return write_for_display(loosen(value))


def _loosen(value: Any, holders: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _loosen(value.value, holders)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="replace")
    if id(value) in holders:
        return value
    inside = (*holders, id(value))
    if isinstance(value, Mapping):
        return {_key(key): _loosen(item, inside) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_loosen(item, inside) for item in value]
    return str(value)


def _key(key: Any) -> str:
    """Ruby's `to_s`, which makes nil empty."""
    loose = _loosen(key, ())
    if loose is None:
        return ""
    if isinstance(loose, bool):
        return "true" if loose else "false"
    return str(loose)
