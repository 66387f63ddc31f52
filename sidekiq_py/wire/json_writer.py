"""
The exact writer: for values that orjson refuses or would write differently from Ruby's `JSON.generate`, and for those
that JSON cannot carry. It says why not, or converts them to the closest value that JSON has.

`json_dialect` only uses it if the fast writer is not enough.
"""

import enum
import json
import math
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.float_text import json3_text, ruby_to_s

if TYPE_CHECKING:
    from decimal import Decimal

# Python refuses to convert longer integers in one go, because that takes quadratic time.
_BITS_AT_ONCE = 1_900  # 572 digits; the least limit that `sys.set_int_max_str_digits` allows is 640

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


def write(value: Any, float_text: FloatText, place: str, levels: int) -> bytes:
    """
    The JSON of a value.

    Args:
        value: Made of str, int, float, bool, None, list and dict with str keys; no subclasses.
        float_text: How to write floats.
        place: The value's name in messages, such as `args`.
        levels: How many levels of nesting it may have.

    Raises:
        ArgumentTypeError: A part has a type that JSON lacks. The message names it and gives advice.
        ArgumentValueError: A part has a value that JSON cannot carry.
    """
    _refuse(value, place, levels, [])
    return "".join(_pieces(value, ruby_to_s if float_text is FloatText.RUBY else json3_text)).encode()


def write_for_display(value: Any) -> str:
    """Like `write`, for values that may have floats that are not finite; floats are written like Python's `json`."""
    return "".join(_pieces(value, json.dumps))


def display_text(value: Any) -> str:
    """Like `str`, but also works for integers of more than 4,300 digits, which Python refuses to print."""
    try:
        return str(value)
    except ValueError:
        return write_for_display(value)


def write_integer(value: int) -> str:
    """A decimal integer of any length."""
    if value < 0:
        return "-" + write_integer(-value)
    if value.bit_length() <= _BITS_AT_ONCE:
        return str(value)
    return _huge_integer(value)


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


def _pieces(value: Any, spell: Callable[[float], str]) -> Iterator[str]:
    kind = type(value)
    if kind is str:
        yield encode_basestring(value)
    elif kind is dict:
        yield "{"
        comma = ""
        for key, item in value.items():
            yield f"{comma}{encode_basestring(key)}:"
            yield from _pieces(item, spell)
            comma = ","
        yield "}"
    elif kind is list:
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ","
            yield from _pieces(item, spell)
        yield "]"
    elif kind is float:
        yield spell(value)
    elif kind is int:
        yield write_integer(value)
    elif value is None:
        yield "null"
    else:
        yield "true" if value else "false"


def _huge_integer(value: int) -> str:
    """
    The digits of an integer of 0 or more.

    It is put together from halves, as `decimal` multiplies large numbers far faster than Python divides them: a payload
    of a million digits held the interpreter for ten seconds.
    """
    import decimal  # rarely needed, and large

    powers: dict[int, Decimal] = {}

    def convert(part: int, bits: int) -> "Decimal":
        if bits <= _BITS_AT_ONCE:
            return decimal.Decimal(part)
        half = bits // 2
        high = part >> half
        if half not in powers:
            powers[half] = decimal.Decimal(2) ** half
        return convert(high, bits - half) * powers[half] + convert(part - (high << half), half)

    exact = decimal.Context(
        prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact]
    )
    with decimal.localcontext(exact):
        return f"{convert(value, value.bit_length()):f}"


def _refuse(value: Any, place: str, levels: int, holders: list[Any]) -> None:
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
                _refuse(item, f"{place}[{index}]", levels - 1, holders)
        else:
            for key, item in value.items():
                _refuse_key(key, place)
                _refuse(item, f"{place}[{_quoted(key)}]", levels - 1, holders)
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


def _refuse_key(key: Any, place: str) -> None:
    if type(key) is not str:
        if isinstance(key, str):
            raise ArgumentTypeError(f"{place} has a key that is {_described(key)}", place)
        kind = named(type(key))
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
        return f"{named(kind)}, an Enum; pass .value"
    if base is not None:
        return f"{named(kind)}, a kind of {base}; pass {base}(...), as Ruby would read a plain {base}"
    if hasattr(kind, "__dataclass_fields__"):
        return f"{named(kind)}, a dataclass; pass dataclasses.asdict(...)"
    if kind.__name__ in _ADVICE:
        return _ADVICE[kind.__name__]
    return f"{named(kind)}; pass strings, numbers, booleans, None, lists and dicts, for example its id"


def _plain_base(kind: type) -> str | None:
    return next((base.__name__ for base in (str, int, float, list, dict) if issubclass(kind, base)), None)


def _is_enum(kind: type) -> bool:
    return hasattr(kind, "__members__") and hasattr(kind, "_member_map_")


def named(kind: type) -> str:
    """The type's name with its article."""
    return f"{'an' if kind.__name__[0] in 'AEIOaeio' else 'a'} {kind.__name__}"


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
        return {to_s(_loosen(key, ())): _loosen(item, inside) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_loosen(item, inside) for item in value]
    return str(value)


def to_s(value: Any) -> str:
    """Ruby's `to_s`, which makes nil empty."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
