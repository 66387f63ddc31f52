"""Checks of what the data API's methods are given."""

from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from sidekiq_py.wire.payload import is_finite, shown


def is_number(value: Any) -> bool:
    """True for a finite number, also for a Decimal or one of NumPy's."""
    is_real = not isinstance(value, bool) and isinstance(value, (Real, Decimal))
    return is_real and is_finite(value)


def count_of(value: Any, name: str, least: int = 1) -> int:
    """
    How many jobs to look at or to return.

    Args:
        value: A whole number, also one of NumPy's.

    Raises:
        ValueError: It is something else, or below *least*.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {shown(value)}; give a whole number, {least} or more")
    return int(value)
