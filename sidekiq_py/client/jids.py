"""
Job ids: 24 hexadecimal digits, like Ruby's `SecureRandom.hex(12)`.

Random bytes are read in bulk, because the system call costs more than the rest of a push. A forked child discards its
parent's store; otherwise both would use the same ids.
"""

import os
from collections import deque

_BYTES = 12
_DIGITS = 2 * _BYTES
_AT_ONCE = 256

_getpid = os.getpid

_store: deque[str] = deque()
_owner = os.getpid()


def new_jid() -> str:
    """A new, unique id."""
    # uWSGI forks without telling Python, so a fork hook would not be enough.
    if _owner != _getpid():
        _start_afresh()
    try:
        return _store.popleft()
    except IndexError:
        # Two threads may both fill the store, which is then larger for a while.
        first, *others = new_jids(_AT_ONCE)
        _store.extend(others)
        return first


def new_jids(count: int) -> list[str]:
    """*count* ids."""
    digits = os.urandom(_BYTES * count).hex()
    return [digits[start : start + _DIGITS] for start in range(0, _DIGITS * count, _DIGITS)]


def _start_afresh() -> None:
    global _owner
    _store.clear()
    _owner = _getpid()
