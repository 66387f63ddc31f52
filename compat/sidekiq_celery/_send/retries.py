"""Repeating what failed because Redis could not be reached, by the policies that kombu has for that."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sidekiq_py.errors import RedisConnectionError

T = TypeVar("T")
Policy = Callable[[], Mapping[str, Any] | None]
"""How often to repeat a call, and after which pauses (`max_retries`, `interval_start` …). Returns None for never."""


def with_retries(
    call: Callable[[], T],
    policy: Policy,
    errors: tuple[type[Exception], ...] = (RedisConnectionError,),
    report: Callable[[Exception, int, Any, float], None] | None = None,
) -> T:
    """
    Make a call, and repeat it if Redis cannot be reached.

    Args:
        policy: Only read after a failure, because a call hardly ever fails.
        errors: Those after which it is repeated. A lost reply is not among them: a push may have arrived.
        report: Called before each pause with the error, the number of the retry, the limit, and the seconds.
    """
    tries = 0
    while True:
        try:
            return call()
        except errors as error:
            wanted = policy()
            limit = None if wanted is None else wanted.get("max_retries")
            if wanted is None or (limit is not None and tries >= limit):
                raise
            pause = wanted.get("interval_start", 0) + tries * wanted.get("interval_step", 0.2)
            pause = min(pause, wanted.get("interval_max", 0.2))
            tries += 1
            if report is not None:
                report(error, tries, limit, pause)
            time.sleep(pause)
