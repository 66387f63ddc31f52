"""
What the parent does about a job that ran past its hard limit, or is to be ended by force.

1. Its child is frozen: it can neither finish the job nor begin another one.
2. Another child, a helper, settles the job as failed (`overdue.py`). If it does not answer within a second, the next
   one is asked too, and where no other is left, one is started: a helper's own job may hold its interpreter lock.
3. The frozen one is killed, and replaced. If its job had ended in that very moment, it goes on instead.

One at a time. Redis settles a job for one helper alone, so several may be asked: whoever comes second finds nothing to
settle. Where nobody settles the job soon, the child is killed all the same, and its job comes back as that of a dead
owner.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.family import Message, readable
from sidekiq_py.engine.family_member import Child, Limit, send_signal

_log = logging.getLogger("sidekiq")

_SETTLE_SECONDS = 10.0
_SETTLE_AGAIN_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
_STOPPED_SECONDS = 0.2


@dataclass(slots=True)
class _Settling:
    """
    One job that is being settled.

    Args:
        child: The frozen one.
        asked: Who was asked, and lives.
        waiting: Of those, who has not answered.
        next_at: When the next one is asked.
        has_started_one: One was started for this.
        is_later: One has answered that Redis is away.
    """

    child: Child
    limit: Limit
    next_at: float
    asked: list[Child] = field(default_factory=list)
    waiting: list[Child] = field(default_factory=list)
    has_started_one: bool = False
    is_later: bool = False


class HardLimits:
    """
    Used by the parent's one thread.

    Args:
        children: All that live.
        helpers: Those of them that stay.
        start_helper: Starts one more.
        hear: Called with what a child says.
    """

    def __init__(
        self,
        children: Callable[[], Sequence[Child]],
        helpers: Callable[[], Sequence[Child]],
        start_helper: Callable[[], Child],
        hear: Callable[[Child, Message], None],
    ) -> None:
        self._children = children
        self._helpers = helpers
        self._start_helper = start_helper
        self._hear = hear
        self._settling: _Settling | None = None

    def __repr__(self) -> str:
        return f"<HardLimits settling={[child.pid for child in self.involved]}>"

    @property
    def involved(self) -> tuple[Child, ...]:
        """The children that are needed until a job is settled."""
        return () if self._settling is None else (self._settling.child, *self._settling.waiting)

    def moments(self) -> Iterator[float]:
        """When there is something to do, on the monotonic clock."""
        for child in self._children():
            if child.limit is not None:
                yield child.limit.frozen_until or child.limit.due
        if self._settling is not None:
            yield self._settling.next_at

    def enforce(self) -> None:
        """Go on with what is due."""
        now = monotonic()
        for child in self._children():
            limit = child.limit
            if limit is None:
                continue
            if limit.frozen_until is None and now >= limit.due and self._settling is None:
                self._freeze(child, limit)
            elif limit.frozen_until is not None and now >= limit.frozen_until:
                self._give_up(child)
        settling = self._settling
        if settling is not None and now >= settling.next_at:
            self._ask_next(settling)

    def note_gone(self, child: Child) -> None:
        """A child has ended."""
        settling = self._settling
        if settling is None:
            return
        if child is settling.child:
            self._settling = None
        elif child in settling.waiting:
            settling.asked.remove(child)
            settling.waiting.remove(child)
            settling.next_at = monotonic()

    def note_settled(self, helper: Child, answer: str, owner: str, job: str) -> None:
        """
        A child answers what became of a job: `yes`, `no` (it had ended) or `later` (Redis is away).

        Args:
            owner: Of the job that it was asked about, as `job`: it may be a former one.
        """
        settling = self._settling
        if settling is None or (settling.limit.owner, settling.limit.field) != (owner, job):
            if answer == "yes":
                self._end_late(owner, job)
            return
        if helper in settling.waiting:
            settling.waiting.remove(helper)
        settling.is_later = settling.is_later or answer == "later"
        if answer == "yes" or (answer == "no" and settling.limit.times_asked > 1):
            # No, of one that was not asked alone: the others' answer is on its way. It is not in flight in either case.
            _log.warning("%s: child %d is killed", settling.limit.reason, settling.child.pid)
            self._kill(settling.child)
        elif answer == "no" or not settling.waiting:
            self._let_go_on(settling)

    def _freeze(self, child: Child, limit: Limit) -> None:
        send_signal(child.pid, signal.SIGSTOP)
        _wait_until_stopped(child.pid)
        # It may have ended in the very moment.
        for message in (readable([child.up.fd], 0) and child.up.read()) or ():
            self._hear(child, message)
        if child.limit is not limit:
            send_signal(child.pid, signal.SIGCONT)
            return
        limit.frozen_until = monotonic() + _SETTLE_SECONDS
        child.is_leaving = True
        child.is_to_be_replaced = True
        self._settling = _Settling(child, limit, next_at=monotonic())
        self._ask_next(self._settling)

    def _ask_next(self, settling: _Settling) -> None:
        """Have one more child settle the job: rather one that is ready, and runs nothing that may be overdue itself."""
        others = [each for each in self._helpers() if each is not settling.child and each not in settling.asked]
        helper = min(others, key=lambda each: (not each.is_ready, each.limit is not None), default=None)
        settling.next_at = monotonic() + _ANSWER_SECONDS
        if helper is None:
            if settling.has_started_one or not all(each.is_ready for each in settling.waiting):
                return
            helper = self._start_helper()
            settling.has_started_one = True
        settling.asked.append(helper)
        settling.waiting.append(helper)
        limit = settling.limit
        limit.times_asked += 1
        helper.down.write("KILLED", limit.seconds, limit.owner, limit.field)

    def _let_go_on(self, settling: _Settling) -> None:
        child, limit = settling.child, settling.limit
        self._settling = None
        if settling.is_later:
            # Killed now, it would come back as the job of a dead owner and run again at once.
            limit.due, limit.frozen_until = monotonic() + _SETTLE_AGAIN_SECONDS, None
        else:
            # It had ended in that very moment.
            child.limit = None
        # It may have been asked to stop.
        child.is_leaving = child.is_to_be_replaced = child.kill_at is not None
        send_signal(child.pid, signal.SIGCONT)

    def _give_up(self, child: Child) -> None:
        """Nobody could settle the job in time."""
        settling = self._settling
        if settling is not None and settling.child is child and settling.is_later:
            self._let_go_on(settling)
        else:
            # It comes back as the job of a dead owner.
            self._kill(child)

    def _end_late(self, owner: str, job: str) -> None:
        """A job has been settled that was let go on when Redis was away."""
        for child in self._children():
            if child.limit is not None and (child.limit.owner, child.limit.field) == (owner, job):
                _log.warning("%s: child %d is killed", child.limit.reason, child.pid)
                self._kill(child)

    def _kill(self, child: Child) -> None:
        child.limit = None
        child.is_to_be_replaced = True
        if self._settling and self._settling.child is child:
            self._settling = None
        send_signal(child.pid, signal.SIGKILL)


def _wait_until_stopped(pid: int) -> None:
    """
    Until no thread of a child runs any more, which takes a moment on another core: what it says in that moment counts.

    One that does not stop, as it has ended or hangs in the kernel, is waited for no longer than 0.2 s.
    """
    deadline = monotonic() + _STOPPED_SECONDS
    while monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None:
            return
        time.sleep(0.001)
