"""Reads numbers from text that any program may have written."""

import re
from math import isfinite

from sidekiq_py.wire.json_reader import read_integer

_MOST = 2**63 - 1
_FEWEST_DIGITS_OF_MOST = 19
_LEADING_INTEGER = re.compile(rb"\s*(?:\+(?=[0-9]))?(-?[0-9]+(?:_[0-9]+)*)")


def to_i(text: bytes | None) -> int:
    """
    Ruby's `to_i`, with which Sidekiq reads counters: the integer at the start of the text, or 0 if there is none.

    Redis counts in 64 bits, so a larger number becomes the largest of these: floats and text could not hold it.
    """
    # Nearly all are short and plain, and a page of metrics reads millions.
    if text and len(text) < _FEWEST_DIGITS_OF_MOST and text.isdigit():
        return int(text)
    found = _LEADING_INTEGER.match(text or b"")
    return max(-_MOST, min(_MOST, read_integer(found[1].replace(b"_", b"").decode()))) if found else 0


def finite(text: str | bytes) -> float | None:
    """*text* as a number; None if it is not a finite one."""
    try:
        number = float(text)
    except ValueError:
        return None
    # `float` knows words such as "nan" and "inf", of which no integer can be made.
    return number if isfinite(number) else None


def to_finite(text: str | bytes | None) -> float:
    """*text* as a number; 0 if it is not one."""
    return finite(text or b"") or 0.0
