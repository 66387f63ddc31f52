"""
A frozen clock, numbered ids and a fixed random draw, for a program that is compared with `ruby_fixtures/history.rb`.

It must be imported before anything that binds the clock's functions by name.
"""

import hashlib
import os
import random
import time

DRAW = 0.75

_urandom = os.urandom
_JID_BYTES = 12


class _World:
    now = 0.0
    drawn = 0


def enter(now: float, draw: int) -> None:
    """
    Freeze the time.

    Args:
        now: Seconds since the epoch.
        draw: The number of job ids that have been drawn.
    """
    _World.now, _World.drawn = now, draw


def _numbered(count: int) -> bytes:
    """The digests that Ruby uses for job ids; real random bytes for any other length."""
    if count % _JID_BYTES:
        return _urandom(count)
    pieces = []
    for _ in range(count // _JID_BYTES):
        _World.drawn += 1
        pieces.append(hashlib.sha512(f"draw {_World.drawn}".encode()).digest()[:_JID_BYTES])
    return b"".join(pieces)


time.time = lambda: _World.now
time.time_ns = lambda: int(_World.now * 1e9)
random.random = lambda: DRAW
os.urandom = _numbered
