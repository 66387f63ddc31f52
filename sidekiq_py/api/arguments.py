"""Checks of what the data API's methods are given."""

from decimal import Decimal
from numbers import Real
from typing import Any

from sidekiq_py.wire.payload import is_finite, shown


def is_number(value: Any) -> bool:
    """True for a finite number, also for a Decimal or one of NumPy's."""
    is_real = not isinstance(value, bool) and isinstance(value, (Real, Decimal))
    return is_real and is_finite(value)


def must_be_count(value: Any, name: str) -> None:
    """
    Check how many jobs to look at or to return.

    Raises:
        ValueError: It is not a whole number of 1 or more.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {shown(value)}; give a whole number, 1 or more")
