"""Reads integers from text that any program may have written."""

import re

from sidekiq_py.wire.json_reader import read_integer

_LEADING_INTEGER = re.compile(rb"\s*(?:\+(?=[0-9]))?(-?[0-9]+(?:_[0-9]+)*)")


def to_i(text: bytes | None) -> int:
    """Ruby's `to_i`, with which Sidekiq reads counters: the integer at the start of the text, or 0 if there is none."""
    found = _LEADING_INTEGER.match(text or b"")
    return read_integer(found[1].replace(b"_", b"").decode()) if found else 0
