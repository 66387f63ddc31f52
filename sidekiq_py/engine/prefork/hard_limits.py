"""
How the parent ends a job that is past its hard limit, or that someone terminates.

1. FREEZING: the job's child is sent SIGSTOP, so that it can neither finish the job nor start another one. Once it has
   stopped, the messages that it sent before are read: if the job had just ended, the child is resumed.
2. FROZEN: another child, a helper, settles the job as failed (`past_time_limit.py`). A helper's own job may hold its
   interpreter lock. So if the helper does not answer within a second, the next one is asked too, and if there is none
   left, one is started.
3. KILLED: once the job is settled, the child is killed and replaced. If a helper finds that the job is not in flight,
   the child is resumed instead, because the job may just have ended. If it does not report that, it runs a job that was
   given to another worker, or that Redis has lost, and is killed a second later. If the job is terminated with a signal
   other than SIGKILL, the child is resumed too, and delivers that signal to its job. A job that survives it is ended by
   its hard limit or by the next signal, and is not settled again.

Jobs are handled one at a time. Several helpers may be asked, because Redis settles a job only once: the second helper
finds nothing to settle. If no helper settles the job in time, the child is killed anyway, and its job is recovered as
that of a dead owner.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess, Limit, Reason, State, signal_name
from sidekiq_py.engine.prefork.fleet import Fleet
from sidekiq_py.logs import log

_SETTLE_SECONDS = 10.0
_SETTLE_AGAIN_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
# How long to wait for a child that does not stop, because it has ended or hangs in the kernel.
_STOPPED_SECONDS = 0.2
# SIGCHLD reports the stop, but it may be merged with another one. So the child is also checked this often.
_STOPPED_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class _Settling:
    """
    A job that is being settled.

    Args:
        child: The child that runs the job.
        limit: The limit that the job is past.
        next_at: When to check whether the child has stopped, or to ask one more helper.
        give_up_at: When to stop waiting, for the child to stop or for the helpers to answer.
        has_stopped: True once the child has stopped; the messages that it sent before can then be read.
        asked: The helpers that were asked and are alive.
        waiting: Those of them that have not answered.
        has_started_one: True if a child was started as a helper for this job.
        is_later: True if a helper has answered that Redis is unreachable.
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
    Ends jobs one at a time. Used only by the parent's single thread, which reads the children's messages before each
    `step`.

    Args:
        fleet: The children.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._settling: _Settling | None = None

    @property
    def involved(self) -> tuple[ChildProcess, ...]:
        """The children that must stay until the current job is settled."""
        return () if self._settling is None else (self._settling.child, *self._settling.waiting)

    def moments(self) -> Iterator[float]:
        """Yield the times at which `step` has something to do, on the monotonic clock."""
        if self._settling is not None:
            yield min(self._settling.next_at, self._settling.give_up_at)
        else:
            for child in self._fleet.children:
                if child.limit is not None and child.is_freezable:
                    yield child.limit.due

    def step(self) -> None:
        """Carry out the next step that is due."""
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
        """A child has ended. If it was a helper, the next one is asked at once."""
        settling = self._settling
        if settling is None:
            return
        if child is settling.child:
            self._settling = None
        elif child in settling.waiting:
            settling.waiting.remove(child)
            settling.next_at = monotonic()

    def note_settled(self, helper: ChildProcess, answer: str, owner: str, job: str) -> None:
        """
        A helper reports whether it has settled a job.

        Args:
            answer: `yes`, `no` (the job is not in flight), or `later` (Redis is unreachable).
            owner, job: The job that the helper was asked about; it may be an earlier one than the current job.
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
            # "no" from one of several helpers: another may have settled the job, and its answer is on the way. Either
            # way the job is no longer in flight.
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
            # The job had just ended.
            self._settling = None
            child.thaw()
        elif settling.has_stopped:
            child.note_frozen()
            settling.give_up_at = now + _SETTLE_SECONDS
            self._ask_next(settling)
        elif _has_stopped(child.pid) or now >= settling.give_up_at:
            # The messages that it sent before are read before the next step.
            settling.has_stopped = True
            settling.next_at = now
        else:
            settling.next_at = now + _STOPPED_LOOK_SECONDS

    # ---- settling

    def _ask_next(self, settling: _Settling) -> None:
        """Ask one more helper to settle the job, preferably one that is ready and runs no hard-limited job itself."""
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
        # If the child were killed while Redis is unreachable, its job would be recovered as that of a dead owner and
        # run again at once. Otherwise the job had just ended and END follows, or it runs without being in flight.
        limit.due = monotonic() + _SETTLE_AGAIN_SECONDS
        limit.is_settled = not settling.is_later
        child.thaw()

    def _give_up(self, settling: _Settling) -> None:
        """Stop waiting for a helper to settle the job."""
        if settling.is_later:
            self._let_go_on(settling)
        else:
            # The job is recovered as that of a dead owner.
            self._settling = None
            settling.child.kill(Reason.PAST_LIMIT)

    def _end_late(self, owner: str, job: str) -> None:
        """End a job that was resumed while Redis was unreachable, and that a helper has settled after all."""
        for child in self._fleet.children:
            if child.limit is not None and (child.limit.owner, child.limit.field) == (owner, job):
                self._end(child, child.limit)

    def _end(self, child: ChildProcess, limit: Limit) -> None:
        """Kill the child whose job is settled, or have it deliver the signal."""
        if self._settling is not None and self._settling.child is child:
            self._settling = None
        if limit.signal_number == signal.SIGKILL:
            log.warning("%s: child %d is killed", limit.reason, child.pid)
            child.kill(Reason.PAST_LIMIT)
        else:
            log.warning("%s: child %d is sent %s", limit.reason, child.pid, signal_name(limit.signal_number))
            child.pass_signal(limit)


def _has_stopped(pid: int) -> bool:
    """True once no thread of the child runs any more. False if the system cannot tell, as macOS before Python 3.13."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:
        # The child has just ended, and sends no more messages either.
        return True
