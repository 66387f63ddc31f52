"""Restarts the children one after the other: the new one first, and when it is ready, the old one goes."""

import logging

from sidekiq_py.engine.prefork.child_process import ChildProcess, End, Reason, State
from sidekiq_py.engine.prefork.fleet import Children

_log = logging.getLogger("sidekiq")


class RollingRestart:
    """
    Used by the parent's one thread.

    Args:
        fleet: The children.

    Attributes:
        newcomer: The one that is to take an old one's place, as long as it starts.
    """

    def __init__(self, fleet: Children) -> None:
        self._fleet = fleet
        self._old: list[ChildProcess] = []
        self.newcomer: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"<RollingRestart old={[child.pid for child in self._old]}>"

    def begin(self) -> None:
        """Replace all that are there now."""
        self._old = self._fleet.staying
        _log.info("Restarting %d children one after the other", len(self._old))

    def cancel(self) -> None:
        """Leave all as they are."""
        self._old.clear()
        self.newcomer = None

    def step(self) -> None:
        """Go on."""
        # Others have gone meanwhile; a frozen one may still go on.
        self._old = [child for child in self._old if child.reason is None and child.state is not State.DEAD]
        if not self._old:
            self.newcomer = None
        elif self.newcomer is None:
            self.newcomer = self._fleet.start()
        elif self.newcomer.is_ready:
            self._fleet.stop(self._old.pop(0), Reason.REPLACED)
            self.newcomer = None

    def note_end(self, child: ChildProcess, end: End) -> None:
        """A child has ended."""
        if child is not self.newcomer:
            return
        self.newcomer = None
        if end in (End.FAILED_START, End.CRASHED):
            _log.error("the restarted program does not start; the children that are at work stay as they are")
            self._old.clear()
