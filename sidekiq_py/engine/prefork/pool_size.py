"""
How many children a pool is to have, and which of them go when there are too many.

1. Now and then, if a policy decides, or when there are too many, the children are asked what they run; one of them
   also how many jobs wait.
2. When all have answered, or have had a second, the policy may want another number.
3. Of too many those go first that have not started yet, then idle ones, then busy ones, which finish first.

A child that does not answer counts as busy: it may be deep in C code.
"""

from collections.abc import Sequence

from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.scaling import Load, ScalingPolicy

LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_MOST_CHILDREN = 1_000


class PoolSize:
    """
    Used by the parent's one thread.

    Args:
        wanted: How many children at first.
        policy: Changes that by itself; without one it stays as it is told.
    """

    def __init__(self, wanted: int, policy: ScalingPolicy | None = None) -> None:
        self.wanted = wanted
        self.policy = policy
        self._stopped = 0
        # The policy's most and least before children were stopped on purpose.
        self._range_before: tuple[int, int] | None = None
        self.running: dict[int, int] = {}
        self._waiting = 0
        self._asked: frozenset[int] = frozenset()
        self._asked_at: float | None = None
        self._next_look_at = 0.0
        self._looks = 0

    def __repr__(self) -> str:
        return f"<PoolSize wanted={self.wanted} policy={self.policy}>"

    def resize(self, wanted: int) -> int:
        """Keep so many from now on, from 1 to 1,000; returns how many."""
        self.wanted = min(max(wanted, 1), _MOST_CHILDREN)
        self._forget_stopped()
        return self.wanted

    def rescale(self, most: int | None = None, least: int | None = None) -> None:
        """Have the policy stay between these from now on."""
        if self.policy is not None:
            self.policy.change(most, least)
            self._forget_stopped()

    def note_stopped(self) -> None:
        """A child was stopped on purpose: there is to be one less until `restore`, also where a policy wants more."""
        if self.wanted == 0:
            return
        self.wanted -= 1
        self._stopped += 1
        if self.policy is not None:
            self._range_before = self._range_before or (self.policy.most, self.policy.least)
            self.policy.change(most=self.policy.most - 1)

    def restore(self) -> None:
        """Those that were stopped on purpose are wanted again; not if another number has been asked for since."""
        self.wanted += self._stopped
        if self.policy is not None and self._range_before is not None:
            self.policy.change(*self._range_before)
        self._forget_stopped()

    def _forget_stopped(self) -> None:
        self._stopped, self._range_before = 0, None

    def due_at(self, children: Sequence[ChildProcess], *, may_scale: bool = True) -> float | None:
        """When `step` has something to do, on the monotonic clock; None: when somebody has answered."""
        if self._asked_at is not None:
            return self._asked_at + _PATIENCE_SECONDS
        if len(children) > self.wanted:
            return 0.0
        return self._next_look_at if self._scales(may_scale) else None

    def _scales(self, may_scale: bool) -> bool:
        return may_scale and self.policy is not None and self.wanted > 0

    def step(self, children: Sequence[ChildProcess], now: float, *, may_scale: bool = True) -> list[ChildProcess]:
        """
        Go on with what is under way.

        Args:
            children: Those that stay and may go.
            may_scale: The policy may want another number; not while the pool is to fetch nothing.

        Returns:
            Those that are to go now.
        """
        if self._asked_at is None:
            is_look_due = self._scales(may_scale) and now >= self._next_look_at
            if is_look_due or len(children) > self.wanted:
                self._ask([child for child in children if child.is_ready], now)
        if self._asked_at is None or (self._are_owed(children) and now < self._asked_at + _PATIENCE_SECONDS):
            return []
        self._asked_at = None
        if self.policy is not None and self._scales(may_scale):
            self.wanted = self.policy.wanted(self._load(children), now)
        surplus = max(0, len(children) - self.wanted)
        return sorted(children, key=self._worth)[:surplus]

    def hear(self, child: ChildProcess, running: int, waiting: int | None = None) -> None:
        """A child answers: how many jobs it runs, and how many wait for all, if it was asked that."""
        self.running[child.pid] = running
        if waiting is not None:
            self._waiting = waiting

    def _ask(self, ready: Sequence[ChildProcess], now: float) -> None:
        self._next_look_at = now + LOOK_SECONDS
        self._asked_at = now
        self._waiting = 0
        self.running.clear()
        self._looks += 1
        may_grow = self.policy is not None and len(ready) < self.policy.most
        # Another one each time: one may hang.
        teller = ready[self._looks % len(ready)] if ready and may_grow else None
        told = [child for child in ready if child.down.write("LOAD", *(("waiting",) if child is teller else ()))]
        self._asked = frozenset(child.pid for child in told)

    def _are_owed(self, children: Sequence[ChildProcess]) -> bool:
        """An answer is still to come."""
        return any(child.pid in self._asked and child.pid not in self.running for child in children)

    def _load(self, children: Sequence[ChildProcess]) -> Load:
        busy = sum(child.is_ready and self.running.get(child.pid, 1) > 0 for child in children)
        # One that still starts will take a job of those that wait.
        return Load(len(children), busy, self._waiting)

    def _worth(self, child: ChildProcess) -> tuple[bool, int]:
        return child.is_ready, self.running.get(child.pid, 1)
