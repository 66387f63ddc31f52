"""Replaces child processes that hold too much memory."""

import logging

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import Reason, rss_kb_of
from sidekiq_py.engine.prefork.fleet import Children

_log = logging.getLogger("sidekiq")

_LOOK_SECONDS = 5.0


class MemoryLimit:
    """
    Used by the parent's one thread.

    Args:
        fleet: The children.
        limit_kb: A child that is larger is replaced; None: there is no limit.

    Attributes:
        next_at: When to look, on the monotonic clock; None: never.
    """

    def __init__(self, fleet: Children, limit_kb: int | None) -> None:
        self._fleet = fleet
        self._limit_kb = limit_kb
        self.next_at = None if limit_kb is None else 0.0

    def step(self) -> None:
        """Look if it is time."""
        if self._limit_kb is None or self.next_at is None or monotonic() < self.next_at:
            return
        self.next_at = monotonic() + _LOOK_SECONDS
        for child in self._fleet.staying:
            size = rss_kb_of(child.pid)
            # One that still imports the program is replaced by another that does the same.
            if child.is_ready and size > self._limit_kb:
                _log.warning("child %d holds %d MB, more than the limit; it is replaced", child.pid, size // 1024)
                self._fleet.stop(child, Reason.REPLACED)
