"""Integers in texts that anybody may have written."""

import re

from sidekiq_py.wire.json_reader import read_integer

_LEADING_INTEGER = re.compile(rb"\s*(?:\+(?=[0-9]))?(-?[0-9]+(?:_[0-9]+)*)")


def to_i(text: bytes | None) -> int:
    """As Ruby's `to_i`, by which Sidekiq reads counters: what the text begins with, 0 where that is no integer."""
    found = _LEADING_INTEGER.match(text or b"")
    return read_integer(found[1].replace(b"_", b"").decode()) if found else 0
