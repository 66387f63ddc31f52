"""Replaces child processes that use too much memory."""

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import Reason, rss_kb_of
from sidekiq_py.engine.prefork.fleet import Fleet
from sidekiq_py.logs import log

_LOOK_SECONDS = 5.0


class MemoryLimit:
    """
    Checks the children's memory. Used only by the parent's single thread.

    Args:
        fleet: The children.
        limit_kb: A child with more resident memory than this is replaced; None means no limit.

    Attributes:
        next_at: When the next check is due, on the monotonic clock; None if there is no limit.
    """

    def __init__(self, fleet: Fleet, limit_kb: int | None) -> None:
        self._fleet = fleet
        self._limit_kb = limit_kb
        self.next_at = None if limit_kb is None else 0.0

    def step(self) -> None:
        """Check the children if it is time."""
        if self._limit_kb is None or self.next_at is None or monotonic() < self.next_at:
            return
        self.next_at = monotonic() + _LOOK_SECONDS
        for child in self._fleet.staying:
            size = rss_kb_of(child.pid)
            # A child that still imports the program is left alone: its replacement would do the same.
            if child.is_ready and size > self._limit_kb:
                log.warning("child %d uses %d MB, more than the limit; it is replaced", child.pid, size // 1024)
                self._fleet.stop(child, Reason.REPLACED)
