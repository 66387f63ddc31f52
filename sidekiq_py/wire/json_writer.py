"""
The exact writer: values that orjson refuses or would spell otherwise than Ruby's `JSON.generate`.

Taken only where `json_dialect` has seen that the fast writer will not do.
"""

import math
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

from sidekiq_py.errors import ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.float_text import json3_text, ruby_to_s

# Python refuses to convert longer integers at once, as that takes quadratic time.
_BITS_AT_ONCE = 12_000


def write(value: Any, float_text: FloatText) -> bytes:
    """
    The JSON of a value that has been checked.

    Args:
        value: Built of exact str, int, float, bool, None, list and dict with str keys.
        float_text: How floats are spelled.

    Raises:
        ArgumentValueError: A string cannot be written as UTF-8, or a float is not finite.
    """
    text = "".join(_pieces(value, ruby_to_s if float_text is FloatText.RUBY else json3_text))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        surrogate = text[error.start]
        raise ArgumentValueError(f"a string holds the lone surrogate {surrogate!r}", "value") from None


def write_integer(value: int) -> str:
    """A decimal integer of any length."""
    if value < 0:
        return "-" + write_integer(-value)
    if value.bit_length() <= _BITS_AT_ONCE:
        return str(value)
    width = value.bit_length() * 3 // 20  # about half of its decimal digits: log10(2) / 2 = 0.1505
    high, low = divmod(value, 10**width)
    return write_integer(high) + write_integer(low).zfill(width)


def _pieces(value: Any, spell: Any) -> Iterator[str]:
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
        if not math.isfinite(value):
            raise ArgumentValueError(f"{value} is a float that JSON cannot carry", "value")
        yield spell(value)
    elif kind is int:
        yield write_integer(value)
    else:
        yield {None: "null", True: "true", False: "false"}[value]
