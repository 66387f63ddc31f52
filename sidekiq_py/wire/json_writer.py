"""
The exact writer: for values that orjson refuses or would write differently from Ruby's `JSON.generate`.

`json_dialect` only uses it if the fast writer is not enough.
"""

import json
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any

from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.float_text import json3_text, ruby_to_s

# Python refuses to convert longer integers in one go, because that takes quadratic time.
_BITS_AT_ONCE = 1_900  # 572 digits; the least limit that `sys.set_int_max_str_digits` allows is 640


def write(value: Any, float_text: FloatText) -> bytes:
    """
    The JSON of a value that `json_refusal.refuse` has accepted.

    Args:
        value: Made of str, int, finite float, bool, None, list and dict with str keys; no subclasses.
        float_text: How to write floats.
    """
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
    from sidekiq_py.wire.huge_integers import decimal_text  # rarely needed, and it imports `decimal`

    return decimal_text(value, _BITS_AT_ONCE)


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
