"""Restarts the children one by one: a new child starts first, and once it is ready, an old one is stopped."""

from sidekiq_py.engine.prefork.child_process import ChildProcess, End, Reason, State
from sidekiq_py.engine.prefork.fleet import Fleet
from sidekiq_py.logs import counted, log


class RollingRestart:
    """
    The progress of one restart. Used only by the parent's single thread.

    Args:
        fleet: The children.

    Attributes:
        newcomer: The child that will replace an old one, while it starts; else None.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._old: list[ChildProcess] = []
        self.newcomer: ChildProcess | None = None

    def begin(self) -> None:
        """Begin to replace all current children."""
        self._old = self._fleet.staying
        log.info("Rolling restart of %s", counted(len(self._old), "child", "children"))

    def cancel(self) -> None:
        """Keep the children that have not been replaced."""
        self._old.clear()
        self.newcomer = None

    def step(self) -> None:
        """Start the next new child, or stop an old one if the new one is ready."""
        # Forget old children that are ending or have ended. A frozen one stays on the list: it may be resumed.
        self._old = [child for child in self._old if child.reason is None and child.state is not State.DEAD]
        if not self._old:
            self.newcomer = None
        elif self.newcomer is None:
            self.newcomer = self._fleet.start()
        elif self.newcomer.is_ready:
            self._fleet.stop(self._old.pop(0), Reason.REPLACED)
            self.newcomer = None

    def note_end(self, child: ChildProcess, end: End) -> None:
        """A child has ended. If it was the new one and it failed, the restart is given up."""
        if child is not self.newcomer:
            return
        self.newcomer = None
        if end in (End.FAILED_START, End.CRASHED):
            log.error("the restarted program does not start; the running children are kept")
            self._old.clear()
