"""Waiting for a fact instead of sleeping for a guess."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T | None], within_seconds: float = 60, every_seconds: float = 0.01) -> T:
    """
    Call *check* until it returns something true, and return that.

    An `AssertionError` raised by *check* counts as "not yet", so a check may be a row of asserts that ends in
    `return True`. Any other exception is a bug in the check and passes through.

    Raises:
        AssertionError: nothing true came within *within_seconds*; the message shows the last value or failed assert.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        last_failure: AssertionError | None = None
        value: T | None = None
        try:
            value = check()
        except AssertionError as failure:
            last_failure = failure
        if value:
            return value
        if time.monotonic() >= deadline:
            shown = f"it failed with: {last_failure}" if last_failure else f"its last value was {value!r}"
            raise AssertionError(f"not true within {within_seconds} s; {shown}") from last_failure
        time.sleep(every_seconds)
