"""
What the parent does about a job that ran past its hard limit, or is to be ended by force.

1. Its child is frozen: it can neither finish the job nor begin another one.
2. Another child settles the job as failed (`overdue.py`).
3. The frozen one is killed, and replaced. If its job had ended in that very moment, it goes on instead.

One at a time. Where nobody settles the job soon, the child is killed all the same, and its job comes back as that of a
dead owner.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.family import Message, readable
from sidekiq_py.engine.family_member import Child, Limit, send_signal

_log = logging.getLogger("sidekiq")

_SETTLE_SECONDS = 10.0
_SETTLE_AGAIN_SECONDS = 1.0
_STOPPED_SECONDS = 0.2


class HardLimits:
    """
    Used by the parent's one thread.

    Args:
        children: All that live.
        helper_for: Another child than the given one, started if there is none.
        hear: Called with what a child says.
    """

    def __init__(
        self,
        children: Callable[[], Sequence[Child]],
        helper_for: Callable[[Child], Child],
        hear: Callable[[Child, Message], None],
    ) -> None:
        self._children = children
        self._helper_for = helper_for
        self._hear = hear
        # The frozen one, and the one that settles its job.
        self._settling: tuple[Child, Child] | None = None

    def __repr__(self) -> str:
        return f"<HardLimits settling={[child.pid for child in self.involved]}>"

    @property
    def involved(self) -> tuple[Child, ...]:
        """The children that are needed until a job is settled."""
        return self._settling or ()

    def moments(self) -> Iterator[float]:
        """When there is something to do, on the monotonic clock."""
        for child in self._children():
            if child.limit is not None:
                yield child.limit.frozen_until or child.limit.due

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
                # Nobody could settle the job in time: it comes back as the job of a dead owner.
                self._kill(child)

    def note_gone(self, child: Child) -> None:
        """A child has ended."""
        if child in self.involved:
            self._settling = None

    def note_settled(self, helper: Child, answer: str) -> None:
        """A child answers what became of the job: `yes`, `no` (it had ended) or `later` (Redis is away)."""
        if self._settling is None or self._settling[1] is not helper:
            return
        child, _ = self._settling
        self._settling = None
        limit = child.limit
        if answer == "yes":
            _log.warning("%s: child %d is killed", limit.reason if limit else "a job is ended", child.pid)
            self._kill(child)
            return
        if limit is not None and answer == "later":
            # Killed now, it would come back as the job of a dead owner and run again at once.
            limit.due, limit.frozen_until = monotonic() + _SETTLE_AGAIN_SECONDS, None
        else:
            # It had ended in that very moment.
            child.limit = None
        child.is_leaving = False
        child.is_to_be_replaced = False
        send_signal(child.pid, signal.SIGCONT)

    def _freeze(self, child: Child, limit: Limit) -> None:
        helper = self._helper_for(child)
        send_signal(child.pid, signal.SIGSTOP)
        _wait_until_stopped(child.pid)
        # It may have ended in the very moment.
        for message in (readable([child.up.fd], 0) and child.up.read()) or ():
            self._hear(child, message)
        if child.limit is not limit:
            send_signal(child.pid, signal.SIGCONT)
            return
        limit.frozen_until = monotonic() + _SETTLE_SECONDS
        self._settling = (child, helper)
        child.is_leaving = True
        child.is_to_be_replaced = True
        helper.down.write("KILLED", limit.seconds, limit.owner, limit.field)

    def _kill(self, child: Child) -> None:
        child.limit = None
        child.is_to_be_replaced = True
        if self._settling and self._settling[0] is child:
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
