"""
Notices that arrive along with jobs: which of the jobs were revoked, and that the notices have changed.

The script that fetches or claims jobs looks both up. So it costs no round trip, and no job that was revoked before it
left its queue is missed. A notice is only a hint: the id may occur in an argument of the job, and the revocation may
have expired since. Ask Redis before acting on it.
"""

import threading
from collections.abc import Callable, Sequence

from sidekiq_py.errors import RedisError
from sidekiq_py.logs import log

# More than a buffer holds.
_MOST_HINTS = 20_000


class Notices:
    """
    The notices that one process has received.

    Args:
        on_change: Called by the fetching thread when the notices have changed. Errors are logged and not passed on,
            because the jobs that came along have left their queue by then. After a `RedisError` it is called again at
            the next fetch; after any other error, at the next change.
    """

    __slots__ = ("_lock", "_number", "_on_change", "_refused", "_revoked")

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._number = b""
        self._refused = b""
        self._revoked: dict[str, None] = {}
        self._on_change = on_change
        self._lock = threading.Lock()

    def may_be_revoked(self, jid: str) -> bool:
        """Returns True if a notice named a job with this id."""
        return jid in self._revoked

    def note(self, notices: Sequence[bytes]) -> None:
        """
        Process the notices in a script's reply.

        Args:
            notices: The number of the notices, followed by the ids of revoked jobs.
        """
        if len(notices) > 1:
            self._remember(notices[1:])
        if notices[0] != self._number:
            self._follow(notices[0])

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
                    log.warning("the notices could not be read; trying again with the next fetch: %s", error)
                self._refused = number
                return
            except Exception:  # noqa: BLE001 - the jobs that came along must not be dropped
                log.exception("the notices could not be applied; the previous ones stay in force")
            self._number = number
