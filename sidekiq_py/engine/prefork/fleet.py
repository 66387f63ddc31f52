"""The child processes that run jobs: who is there, who joins, who has to go."""

from collections.abc import Callable
from typing import Protocol

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess, Reason
from sidekiq_py.engine.prefork.forks import Forks, Run


class Children(Protocol):
    """What the parts of the parent need of the children."""

    @property
    def children(self) -> list[ChildProcess]:
        """All that live, also those that are to go."""

    @property
    def staying(self) -> list[ChildProcess]:
        """Those that are counted on."""

    def start(self) -> ChildProcess:
        """One more; OSError if the system has no room for it."""

    def stop(self, child: ChildProcess, reason: Reason) -> None:
        """Tell one to stop; it is killed if it takes too long."""


class Fleet:
    """
    Used by the parent's one thread.

    Args:
        run: What each child does, and its exit code.
        stop_seconds: What a child may take to stop before it is killed.
        before_fork: Called before each child is made.
    """

    def __init__(self, forks: Forks, run: Run, *, stop_seconds: float, before_fork: Callable[[], None]) -> None:
        self._forks = forks
        self._run = run
        self._stop_seconds = stop_seconds
        self._before_fork = before_fork
        self._children: list[ChildProcess] = []

    def __repr__(self) -> str:
        return f"<Fleet {[(child.pid, child.state.name) for child in self._children]}>"

    @property
    def children(self) -> list[ChildProcess]:
        """All that live, also those that are to go."""
        return list(self._children)

    @property
    def staying(self) -> list[ChildProcess]:
        """Those that are counted on."""
        return [child for child in self._children if child.is_staying]

    @property
    def ready(self) -> list[ChildProcess]:
        """Those that hear what they are told."""
        return [child for child in self._children if child.is_ready]

    def start(self) -> ChildProcess:
        """
        Make one more.

        Raises:
            OSError: The system has no room for it.
        """
        self._before_fork()
        child = self._forks.fork(self._run)
        self._children.append(child)
        return child

    def stop(self, child: ChildProcess, reason: Reason) -> None:
        """Tell one to stop; it is killed if it takes too long."""
        child.stop(reason, monotonic() + self._stop_seconds)

    def note_leaving(self, child: ChildProcess) -> bool:
        """One says that it stops. True if nobody here told it to."""
        return child.note_leaving(monotonic() + self._stop_seconds)

    def remove(self, child: ChildProcess) -> None:
        """It has ended."""
        self._children.remove(child)

    def next_kill_at(self) -> float | None:
        """When the next one that is still there is killed, on the monotonic clock."""
        return min((child.kill_at for child in self._children if child.kill_at is not None), default=None)

    def kill_late(self) -> None:
        """Kill those that had their time to stop."""
        for child in self._children:
            if child.kill_at is not None and monotonic() >= child.kill_at:
                child.kill(child.reason or Reason.REPLACED)
