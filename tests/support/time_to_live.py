"""How long a key was given to live, although some of that time is over when a test looks."""

import time

import redis

# Redis counts whole milliseconds, and by another clock.
_ROUNDING_SECONDS = 0.01


def was_given(client: redis.Redis, key: str, seconds: float, *, since: float) -> bool:
    """
    True if the key was given *seconds* to live after *since*, on the monotonic clock.

    `TTL` rounds to whole seconds: half a second after the write it shows one less.
    """
    left = float(client.pttl(key)) / 1000
    return seconds - (time.monotonic() - since) - _ROUNDING_SECONDS <= left <= seconds
