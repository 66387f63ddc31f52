"""
Decides how many children a pool should have, and which of them must exit when there are too many.

1. Once a second if there is a scaling policy, and whenever there are too many children, the children are asked how many
   jobs they run. One of them is also asked how many jobs wait.
2. When all have answered, or after a second, the policy may choose another number.
3. Surplus children exit in this order: those that have not started yet, idle ones, then busy ones, which finish their
   jobs first. Of several alike, the youngest exits.

A child that does not answer counts as busy: it may be running C code. So does one that has started since the question.
"""

from collections.abc import Sequence

from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.scaling import Load, ScalingPolicy

LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_MOST_CHILDREN = 1_000


class PoolSize:
    """
    The wanted size of a pool. Used only by the parent's single thread.

    Args:
        wanted: The number of children at the start.
        policy: Changes the number by load. Without a policy, only `resize` and stopped children change it.
    """

    def __init__(self, wanted: int, policy: ScalingPolicy | None = None) -> None:
        self.wanted = wanted
        self.policy = policy
        self._stopped = 0
        # The policy's `most` and `least` before children were stopped on purpose.
        self._range_before: tuple[int, int] | None = None
        self.running: dict[int, int] = {}
        self._waiting = 0
        self._asked: frozenset[int] = frozenset()
        self._asked_at: float | None = None
        self._next_look_at = 0.0
        self._looks = 0

    def resize(self, wanted: int) -> int:
        """Keep this many children from now on, from 1 to 1,000. Returns the number that applies."""
        self.wanted = min(max(wanted, 1), _MOST_CHILDREN)
        self._forget_stopped()
        return self.wanted

    def rescale(self, most: int, least: int) -> None:
        """Set the policy's bounds."""
        if self.policy is not None:
            self.policy.change(most, least)
            self._forget_stopped()

    def note_stopped(self) -> None:
        """A child was stopped on purpose: keep one less until `restore`, even if a policy wants more."""
        if self.wanted == 0:
            return
        self.wanted -= 1
        self._stopped += 1
        if self.policy is not None:
            self._range_before = self._range_before or (self.policy.most, self.policy.least)
            self.policy.change(most=self.policy.most - 1)

    def restore(self) -> None:
        """Undo `note_stopped`, unless another number has been asked for since."""
        self.wanted += self._stopped
        if self.policy is not None and self._range_before is not None:
            self.policy.change(*self._range_before)
        self._forget_stopped()

    def _forget_stopped(self) -> None:
        self._stopped, self._range_before = 0, None

    def due_at(self, children: Sequence[ChildProcess], *, may_scale: bool = True) -> float | None:
        """When `step` has something to do, on the monotonic clock; None if nothing is scheduled."""
        if self._asked_at is not None:
            return self._asked_at + _PATIENCE_SECONDS
        if len(children) > self.wanted:
            return 0.0
        return self._next_look_at if self._scales(may_scale) else None

    def _scales(self, may_scale: bool) -> bool:
        return may_scale and self.policy is not None and self.wanted > 0

    def step(self, children: Sequence[ChildProcess], now: float, *, may_scale: bool = True) -> list[ChildProcess]:
        """
        Ask the children for their load if it is due, and evaluate their answers.

        Args:
            children: The children that are not ending and may be stopped.
            now: The current time on the monotonic clock.
            may_scale: False while the pool is quiet: the policy is then not asked.

        Returns:
            The children that must exit now.
        """
        if self._asked_at is None:
            is_look_due = self._scales(may_scale) and now >= self._next_look_at
            if is_look_due or len(children) > self.wanted:
                self._ask([child for child in children if child.is_ready], now)
        if self._asked_at is None or (self._are_answers_pending(children) and now < self._asked_at + _PATIENCE_SECONDS):
            return []
        self._asked_at = None
        if self.policy is not None and self._scales(may_scale):
            self.wanted = self.policy.wanted(self._load(children), now)
        surplus = max(0, len(children) - self.wanted)
        return sorted(children, key=self._worth)[:surplus]

    def note_load(self, child: ChildProcess, running: int, waiting: int | None = None) -> None:
        """A child reports how many jobs it runs, and how many wait in the queues, if it was asked for that."""
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
        # A different child each time, because one may hang.
        counter = ready[self._looks % len(ready)] if ready and may_grow else None
        asked = [child for child in ready if child.down.write("LOAD", *(("waiting",) if child is counter else ()))]
        self._asked = frozenset(child.pid for child in asked)

    def _are_answers_pending(self, children: Sequence[ChildProcess]) -> bool:
        """True while an answer is pending."""
        return any(child.pid in self._asked and child.pid not in self.running for child in children)

    def _load(self, children: Sequence[ChildProcess]) -> Load:
        busy = sum(child.is_ready and self.running.get(child.pid, 1) > 0 for child in children)
        # A child that is still starting does not count as busy: it will take one of the waiting jobs.
        return Load(len(children), busy, self._waiting)

    def _worth(self, child: ChildProcess) -> tuple[bool, int, float]:
        return child.is_ready, self.running.get(child.pid, 1), -child.born_at
