"""The child processes that run jobs: which ones there are, starting new ones, and stopping them."""

from collections.abc import Callable

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess, Reason
from sidekiq_py.engine.prefork.forks import Forks, Run


class Fleet:
    """
    The children of the parent. Used only by the parent's single thread.

    Args:
        forks: Forks the children.
        run: Called in each child; returns its exit code.
        stop_seconds: How long a child may take to stop before it is killed.
        before_fork: Called before each child is forked.

    Attributes:
        is_stopping: True if a child that is started now must not take jobs: it is only to settle the job of another.
    """

    def __init__(self, forks: Forks, run: Run, *, stop_seconds: float, before_fork: Callable[[], None]) -> None:
        self._forks = forks
        self._run = run
        self._stop_seconds = stop_seconds
        self._before_fork = before_fork
        self._children: list[ChildProcess] = []
        self.is_stopping = False

    def __repr__(self) -> str:
        return f"<Fleet {[(child.pid, child.state.name) for child in self._children]}>"

    @property
    def children(self) -> list[ChildProcess]:
        """All living children, including those that must exit."""
        return list(self._children)

    @property
    def staying(self) -> list[ChildProcess]:
        """The children that are not known to be ending; see `ChildProcess.is_staying`."""
        return [child for child in self._children if child.is_staying]

    @property
    def ready(self) -> list[ChildProcess]:
        """The children that read the parent's messages."""
        return [child for child in self._children if child.is_ready]

    def start(self) -> ChildProcess:
        """
        Start one more child.

        Raises:
            OSError: The system cannot create another process.
        """
        self._before_fork()
        child = self._forks.fork(self._run)
        self._children.append(child)
        if self.is_stopping:
            child.down.write("QUIET")
        return child

    def stop(self, child: ChildProcess, reason: Reason) -> None:
        """Ask a child to stop. It is killed if it takes too long."""
        child.stop(reason, monotonic() + self._stop_seconds)

    def note_leaving(self, child: ChildProcess) -> bool:
        """A child reports that it stops. Returns True if the parent has not asked it to."""
        return child.note_leaving(monotonic() + self._stop_seconds)

    def remove(self, child: ChildProcess) -> None:
        """Remove a child that has ended."""
        self._children.remove(child)

    def next_kill_at(self) -> float | None:
        """When the next late child is killed, on the monotonic clock; None if no child is stopping."""
        return min((child.kill_at for child in self._children if child.kill_at is not None), default=None)

    def kill_late(self) -> None:
        """Kill the children whose time to stop is over."""
        for child in self._children:
            if child.kill_at is not None and monotonic() >= child.kill_at:
                child.kill(child.reason or Reason.REPLACED)
