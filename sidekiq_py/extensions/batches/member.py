"""
The key in a member's payload: `"sidekiq_py_batch": ["<bid>", <number>]`. A child's callback is a member of the parent,
with `["<bid>", <number>, "<event>"]`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

KEY = "sidekiq_py_batch"
TRACKED_KEY = "sidekiq_py_tracked"
"""The key in the payload of a member whose batch keeps a row for it; its value is `true`."""

_BID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The most bits that a bitmap in Redis can have.
_MOST_NUMBERS = 2**32


class Membership(NamedTuple):
    """
    A job's membership in a batch.

    Args:
        number: The member's number, from 0.
        is_callback: True for a callback of a child batch.
    """

    bid: str
    number: int
    is_callback: bool = False


@lru_cache(maxsize=1024)
def _is_spelled_right(text: str) -> bool:
    return _BID.fullmatch(text) is not None


def is_bid(text: object) -> bool:
    """True if it can be the id of a batch."""
    return type(text) is str and _is_spelled_right(text)


def is_membership(value: Any) -> TypeGuard[list[Any]]:
    """True if it is a valid value of `KEY`, which any program may have written."""
    if type(value) is not list or not 2 <= len(value) <= 3:
        return False
    bid, number = value[0], value[1]
    # Few calls, because this runs at the end of each member.
    return type(number) is int and 0 <= number < _MOST_NUMBERS and type(bid) is str and _is_spelled_right(bid)


def membership_of(payload: Mapping[str, Any]) -> Membership | None:
    """The membership in the payload; None if it has none or an invalid one."""
    value = payload.get(KEY)
    return Membership(value[0], value[1], len(value) == 3) if is_membership(value) else None
