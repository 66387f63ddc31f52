"""
What Redis tells a worker along with its jobs: which of them were revoked, and that the notices have changed.

A fetch and a claim look both up in the script that takes the jobs, so it costs no round trip, and a job that was
revoked before it left its queue is never missed. What is heard here is a hint: an id may stand in an argument, and a
revoke may have run out since. Who is about to act on it asks Redis.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from sidekiq_py.errors import RedisError

_log = logging.getLogger("sidekiq")

# More than a buffer holds.
_MOST_HINTS = 20_000


class Notices:
    """
    What one process has heard.

    Args:
        on_change: Called by the thread that fetches, when the notices are others than before. Whatever it
            raises is logged and goes no further: the jobs that came along have left their queue by then. After a
            `RedisError` it is called again at the next fetch, else when the orders change again.
    """

    __slots__ = ("_lock", "_number", "_on_change", "_refused", "_revoked")

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._number = b""
        self._refused = b""
        self._revoked: dict[str, None] = {}
        self._on_change = on_change
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Orders {self._number!r} hints={len(self._revoked)}>"

    def may_be_revoked(self, jid: str) -> bool:
        """A job of this id was told of."""
        return jid in self._revoked

    def note(self, told: Sequence[bytes]) -> None:
        """
        Take in what a script has replied.

        Args:
            told: The number of the notices, and the ids.
        """
        if len(told) > 1:
            self._remember(told[1:])
        if told[0] != self._number:
            self._follow(told[0])

    def _remember(self, jids: Sequence[bytes]) -> None:
        with self._lock:
            for jid in jids:
                self._revoked[jid.decode(errors="replace")] = None
            while len(self._revoked) > _MOST_HINTS:
                del self._revoked[next(iter(self._revoked))]

    def _follow(self, number: bytes) -> None:
        with self._lock:
            try:
                self._on_change()
            except RedisError as error:
                if number != self._refused:
                    _log.warning("the notices could not be read; they are asked for again: %s", error)
                self._refused = number
                return
            except Exception:  # noqa: BLE001 - whatever it is, the jobs must not be dropped with it
                _log.exception("the notices could not be applied; those from before stay in force")
            self._number = number
