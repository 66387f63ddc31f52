"""
Explains why a value cannot be a job's argument: finds the part that is at fault and gives advice.

This walk is slow; `json_dialect` only uses it after its quick check has refused the value.
"""

import math
from typing import Any

from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError

_ADVICE = {
    "tuple": "a tuple; pass list(...), which is what the job would receive",
    "set": "a set; pass sorted(...), as JSON has no sets",
    "frozenset": "a frozenset; pass sorted(...), as JSON has no sets",
    "bytes": "bytes; pass .decode() or base64.b64encode(...).decode()",
    "bytearray": "a bytearray; pass base64.b64encode(...).decode()",
    "memoryview": "a memoryview; pass base64.b64encode(...).decode()",
    "datetime": "a datetime; pass when.isoformat() or an epoch number",
    "date": "a date; pass day.isoformat()",
    "time": "a time; pass .isoformat()",
    "timedelta": "a timedelta; pass .total_seconds()",
    "Decimal": "a Decimal; pass str(...), as a float would lose digits",
    "Fraction": "a Fraction; pass str(...)",
    "UUID": "a UUID; pass str(...)",
    "complex": "a complex; pass [z.real, z.imag]",
    "range": "a range; pass list(...), or its start and stop",
    "generator": "a generator; pass list(...)",
}

_MOST_OF_A_PLACE = 100


def refuse(value: Any, place: str, levels: int) -> None:
    """
    Raise an error for the first part of *value* that a job cannot carry. Returns if there is none.

    Args:
        value: The value to send.
        place: Its name in messages, such as `args`.
        levels: How many levels of nesting it may have.

    Raises:
        ArgumentTypeError: A part has a type that JSON lacks.
        ArgumentValueError: A part has a value that JSON cannot carry.
    """
    _visit(value, place, levels, [])


def refuse_args(args: Any, place: str, levels: int) -> None:
    """
    Like `refuse`, for a list of arguments.

    Raises:
        ArgumentTypeError: It is not a list, or a part has a type that JSON lacks.
        ArgumentValueError: A part has a value that JSON cannot carry.
    """
    refuse(args, place, levels)
    if type(args) is not list:
        raise ArgumentTypeError(f"{place} is {_named(type(args))}; pass a list, [x] for a single argument", place)


def _visit(value: Any, place: str, levels: int, holders: list[Any]) -> None:
    kind = type(value)
    if kind is str:
        _refuse_surrogates(value, place)
    elif kind is float:
        if not math.isfinite(value):
            raise ArgumentValueError(f"{place} is {value}, which JSON cannot carry; pass None or a number", place)
    elif kind is list or kind is dict:
        _enter(value, place, levels, holders)
        if kind is list:
            for index, item in enumerate(value):
                _visit(item, f"{place}[{index}]", levels - 1, holders)
        else:
            for key, item in value.items():
                _visit_key(key, place)
                _visit(item, f"{place}[{_quoted(key)}]", levels - 1, holders)
        holders.pop()
    elif value is not None and kind is not int and kind is not bool:
        raise ArgumentTypeError(f"{place} is {_described(value)}", place)


def _enter(value: Any, place: str, levels: int, holders: list[Any]) -> None:
    if any(value is holder for holder in holders):
        raise ArgumentValueError(f"{place} contains itself; JSON has no references, pass a copy without cycles", place)
    if levels <= 0:
        raise ArgumentValueError(
            f"{_shortened(place)} is nested too deep: Ruby reads 100 levels, the payload's own included; "
            "pass a flatter value",
            place,
        )
    holders.append(value)


def _shortened(place: str) -> str:
    return place if len(place) <= _MOST_OF_A_PLACE else f"{place[:_MOST_OF_A_PLACE]}…"


def _visit_key(key: Any, place: str) -> None:
    if type(key) is not str:
        if isinstance(key, str):
            raise ArgumentTypeError(f"{place} has a key that is {_described(key)}", place)
        kind = _named(type(key))
        raise ArgumentTypeError(f"{place} has the key {key!r}, {kind}; JSON's keys are strings, pass str(key)", place)
    _refuse_surrogates(key, place)


def _refuse_surrogates(text: str, place: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(
            f"{place} contains the lone surrogate {text[error.start]!r}, which UTF-8 cannot carry; "
            "decode the bytes with errors='replace', or pass them in base64",
            place,
        ) from None


def _quoted(key: str) -> str:
    return '"' + key.replace('"', '\\"') + '"'


def _described(value: Any) -> str:
    kind = type(value)
    base = _plain_base(kind)
    if _is_enum(kind):
        return f"{_named(kind)}, an Enum; pass .value"
    if base is not None:
        return f"{_named(kind)}, a kind of {base}; pass {base}(...), as Ruby would read a plain {base}"
    if hasattr(kind, "__dataclass_fields__"):
        return f"{_named(kind)}, a dataclass; pass dataclasses.asdict(...)"
    if kind.__name__ in _ADVICE:
        return _ADVICE[kind.__name__]
    return f"{_named(kind)}; pass strings, numbers, booleans, None, lists and dicts, for example its id"


def _plain_base(kind: type) -> str | None:
    for base in (str, int, float, list, dict):
        if issubclass(kind, base):
            return base.__name__
    return None


def _is_enum(kind: type) -> bool:
    return hasattr(kind, "__members__") and hasattr(kind, "_member_map_")


def _named(kind: type) -> str:
    """The type's name with its article."""
    return f"{'an' if kind.__name__[0] in 'AEIOaeio' else 'a'} {kind.__name__}"
