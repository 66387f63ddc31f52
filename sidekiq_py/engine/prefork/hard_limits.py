"""
What the parent does about a job that is past its hard limit, or is to be terminated.

1. FREEZING: its child is sent SIGSTOP, so that it can neither finish the job nor begin another one. When it stands
   still, what it has said until then is read: if the job had ended in that very moment, the child goes on.
2. FROZEN: another child, a helper, settles the job as failed (`past_time_limit.py`). If it does not answer within a
   second, the next one is asked too, and where no other is left, one is started: a helper's own job may hold its
   interpreter lock.
3. KILLED: the job is settled, and the child is killed and replaced. If a helper finds that the job had ended, the child
   goes on instead. Where the job is to be ended by another signal than SIGKILL, the child goes on as well, and has its
   job hit by that; what survives it is ended by its hard limit, or by the next signal, without another settling.

One at a time. Redis settles a job for one helper alone, so several may be asked: whoever comes second finds nothing to
settle. Where nobody settles the job soon, the child is killed all the same, and its job comes back as that of a dead
owner.
"""

import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess, Limit, Reason, State, signal_name
from sidekiq_py.engine.prefork.fleet import Children

_log = logging.getLogger("sidekiq")

_SETTLE_SECONDS = 10.0
_SETTLE_AGAIN_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
# One that does not stop, as it has ended or hangs in the kernel, is waited for no longer.
_STOPPED_SECONDS = 0.2
# SIGCHLD tells of the stop; another signal may have come with it and hidden it.
_STOPPED_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class _Settling:
    """
    One job that is being settled.

    Args:
        child: That runs it.
        next_at: When there is something to do: look whether the child stands still, or ask one more.
        give_up_at: When the child is waited for no longer, or the helpers are not.
        has_stopped: It stands still, and what it said before can be read.
        asked: Who was asked, and lives.
        waiting: Of those, who has not answered.
        has_started_one: One was started for this.
        is_later: One has answered that Redis is away.
    """

    child: ChildProcess
    limit: Limit
    next_at: float
    give_up_at: float
    has_stopped: bool = False
    asked: list[ChildProcess] = field(default_factory=list)
    waiting: list[ChildProcess] = field(default_factory=list)
    has_started_one: bool = False
    is_later: bool = False


class HardLimits:
    """
    Used by the parent's one thread, which reads what children say before each `step`.

    Args:
        fleet: The children.
    """

    def __init__(self, fleet: Children) -> None:
        self._fleet = fleet
        self._settling: _Settling | None = None

    def __repr__(self) -> str:
        return f"<HardLimits settling={[child.pid for child in self.involved]}>"

    @property
    def involved(self) -> tuple[ChildProcess, ...]:
        """The children that are needed until a job is settled."""
        return () if self._settling is None else (self._settling.child, *self._settling.waiting)

    def moments(self) -> Iterator[float]:
        """When there is something to do, on the monotonic clock."""
        if self._settling is not None:
            yield min(self._settling.next_at, self._settling.give_up_at)
        else:
            for child in self._fleet.children:
                if child.limit is not None and child.is_freezable:
                    yield child.limit.due

    def step(self) -> None:
        """Go on with what is due."""
        settling, now = self._settling, monotonic()
        if settling is None:
            self._freeze_next(now)
        elif settling.child.state is State.FREEZING:
            self._watch_freezing(settling, now)
        elif now >= settling.give_up_at:
            self._give_up(settling)
        elif now >= settling.next_at:
            self._ask_next(settling)

    def note_gone(self, child: ChildProcess) -> None:
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

    def note_settled(self, helper: ChildProcess, answer: str, owner: str, job: str) -> None:
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
            self._end(settling.child, settling.limit)
        elif answer == "no" or not settling.waiting:
            self._let_go_on(settling)

    # ---- freezing

    def _freeze_next(self, now: float) -> None:
        for child in self._fleet.children:
            if child.limit is not None and now >= child.limit.due and child.is_freezable:
                if child.limit.is_settled:
                    self._end(child, child.limit)
                    return
                child.freeze()
                self._settling = _Settling(child, child.limit, next_at=now, give_up_at=now + _STOPPED_SECONDS)
                return

    def _watch_freezing(self, settling: _Settling, now: float) -> None:
        child, limit = settling.child, settling.limit
        if child.limit is not limit:
            # It had ended in that very moment.
            self._settling = None
            child.thaw()
        elif settling.has_stopped:
            child.note_frozen()
            settling.give_up_at = now + _SETTLE_SECONDS
            self._ask_next(settling)
        elif _has_stopped(child.pid) or now >= settling.give_up_at:
            # What it said until then is read before the next step.
            settling.has_stopped = True
            settling.next_at = now
        else:
            settling.next_at = now + _STOPPED_LOOK_SECONDS

    # ---- settling

    def _ask_next(self, settling: _Settling) -> None:
        """Have one more child settle the job: rather one that is ready, and runs nothing that may be overdue itself."""
        others = [each for each in self._fleet.staying if each is not settling.child and each not in settling.asked]
        helper = min(others, key=lambda each: (not each.is_ready, each.limit is not None), default=None)
        settling.next_at = monotonic() + _ANSWER_SECONDS
        if helper is None:
            if settling.has_started_one or not all(each.is_ready for each in settling.waiting):
                return
            helper = self._fleet.start()
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
            limit.due = monotonic() + _SETTLE_AGAIN_SECONDS
        else:
            # It had ended in that very moment.
            child.limit = None
        child.thaw()

    def _give_up(self, settling: _Settling) -> None:
        """Nobody could settle the job in time."""
        if settling.is_later:
            self._let_go_on(settling)
        else:
            # It comes back as the job of a dead owner.
            self._kill(settling.child)

    def _end_late(self, owner: str, job: str) -> None:
        """A job has been settled that was let go on when Redis was away."""
        for child in self._fleet.children:
            if child.limit is not None and (child.limit.owner, child.limit.field) == (owner, job):
                self._end(child, child.limit)

    def _end(self, child: ChildProcess, limit: Limit) -> None:
        """Its job is settled."""
        if limit.signal_number == signal.SIGKILL:
            _log.warning("%s: child %d is killed", limit.reason, child.pid)
            self._kill(child)
            return
        _log.warning("%s: child %d is sent %s", limit.reason, child.pid, signal_name(limit.signal_number))
        if self._settling is not None and self._settling.child is child:
            self._settling = None
        child.pass_signal(limit)

    def _kill(self, child: ChildProcess) -> None:
        if self._settling is not None and self._settling.child is child:
            self._settling = None
        child.kill(Reason.PAST_LIMIT)


def _has_stopped(pid: int) -> bool:
    """No thread of a child runs any more."""
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:
        # It has ended in that very moment, and says no more either.
        return True
