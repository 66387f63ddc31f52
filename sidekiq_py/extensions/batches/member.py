"""
The key of a member's payload: `"sidekiq_py_batch": ["<bid>", <number>]`; of a child's callback, which is a member of
the parent, `["<bid>", <number>, "<event>"]`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

KEY = "sidekiq_py_batch"
TRACKED_KEY = "sidekiq_py_tracked"
"""Of a member whose batch keeps a row for it: `true`."""

_BID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The bits of a bitmap that Redis can have.
_MOST_NUMBERS = 2**32


class Membership(NamedTuple):
    """
    Of a job in a batch.

    Args:
        number: The member's, from 0.
        is_callback: It is a callback of a child.
    """

    bid: str
    number: int
    is_callback: bool = False


@lru_cache(maxsize=1024)
def _is_spelled_right(text: str) -> bool:
    return _BID.fullmatch(text) is not None


def is_bid(text: object) -> bool:
    """Whether it can be the id of a batch."""
    return type(text) is str and _is_spelled_right(text)


def is_membership(value: Any) -> TypeGuard[list[Any]]:
    """Whether it can stand at `KEY`: anybody may have written it."""
    if type(value) is not list or not 2 <= len(value) <= 3:
        return False
    bid, number = value[0], value[1]
    # Without calls where it can be: each member's end asks.
    return type(number) is int and 0 <= number < _MOST_NUMBERS and type(bid) is str and _is_spelled_right(bid)


def membership_of(payload: Mapping[str, Any]) -> Membership | None:
    """What the payload says; None also for what is no membership."""
    value = payload.get(KEY)
    return Membership(value[0], value[1], len(value) == 3) if is_membership(value) else None
