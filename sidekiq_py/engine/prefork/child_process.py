"""The parent's view of one child of `--processes N`: a state machine."""

import math
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.pipes import LinePipe, Outbox
from sidekiq_py.engine.run.past_time_limit import BY_SIGNAL


def terminated_by(signal_number: int) -> str:
    """The text for a job that someone terminates, used in place of the seconds of a hard limit."""
    return f"{BY_SIGNAL}{signal_number}"


class State(Enum):
    """
    The states of a child process.

        STARTING ──> READY ──> LEAVING
            │          ^ │        ^ │
            │          │ v        │ v
            │        FREEZING   FREEZING     its job is past its time limit, or is being terminated
            │          ^ │        ^ │
            │          │ v        │ v
            │         FROZEN     FROZEN      and back if the job had ended by itself
            v            └────┬─────┘
        CANCELLED             v
            └──────────────> KILLED          and from every state: DEAD
    """

    STARTING = "imports the program: a signal other than TERM would end or stop it"
    READY = "takes jobs"
    CANCELLED = "was asked to stop before it was ready"
    LEAVING = "was asked to stop, or reported that it stops"
    FREEZING = "was sent SIGSTOP; messages it sent before are still to be read"
    FROZEN = "is stopped until another child has settled its job"
    KILLED = "was sent SIGKILL"
    DEAD = "has ended"


_DEAF = (State.STARTING, State.CANCELLED, State.KILLED, State.DEAD)
_STANDING_STILL = (State.FREEZING, State.FROZEN)


class Reason(Enum):
    """Why a child must exit."""

    STOPPED = "someone stopped only this child, for example from a Web UI"
    REPLACED = "another child takes its place"
    ALL_STOP = "the parent stops"
    PAST_LIMIT = "its job is past its time limit, or was terminated"


class End(Enum):
    """How a child ended."""

    CANCELLED = "it was no longer needed before it was ready"
    LEFT = "it was asked to stop, or reported that it stops, and stopped cleanly"
    CUT_SHORT = "it was asked to stop, and died before it had stopped cleanly"
    FAILED_START = "it died before it was ready"
    CRASHED = "it ended without being asked to"


@dataclass(slots=True)
class Limit:
    """
    A job that runs under a hard limit, or that someone terminates now.

    Args:
        seconds: The limit as the child reported it, or a `terminated_by` text.
        owner: The owner that the job is in flight under.
        field: The job's in-flight field.
        due: When the job is past the limit, on the monotonic clock.
        times_asked: How many children were asked to settle the job.
        is_settled: True if the job is no longer in flight but still runs: it survived the signal that should end it,
            the signal has not reached it yet, or the job was given to another worker or lost by Redis.
        beneath: The job's own hard limit, while the job is being terminated.
    """

    seconds: str
    owner: str
    field: str
    due: float
    times_asked: int = 0
    is_settled: bool = False
    beneath: "Limit | None" = None

    def __post_init__(self) -> None:
        if math.isnan(self.due):
            raise ValueError("a time limit cannot be nan")

    @property
    def is_order(self) -> bool:
        """True if someone terminates the job, rather than its hard limit."""
        return self.seconds.startswith(BY_SIGNAL)

    @property
    def signal_number(self) -> int:
        """The signal that the job's process is sent once the job is settled."""
        return int(self.seconds.removeprefix(BY_SIGNAL)) if self.is_order else signal.SIGKILL

    def after_signal(self) -> "Limit":
        """The limit that applies after the signal, which the job may survive."""
        return replace(self.beneath or replace(self, due=math.inf), is_settled=True)

    @property
    def reason(self) -> str:
        """Why the job's process is killed or sent a signal, for the log."""
        if self.is_order:
            return "a job is ended by remote control"
        return f"a job ran past its hard limit of {self.seconds} s"


@dataclass(slots=True, eq=False)
class ChildProcess:
    """
    A child process.

    Args:
        up: The pipe that the child writes to.
        down: The pipe that the parent writes to.
        born_at: When the child was forked, on the monotonic clock.
        owners: The owners under which the child has taken jobs.
        limit: The limit of the running job, if it has one.
        reason: Why the child must exit; None if it may stay.
        kill_at: When the child is killed if it has not exited by then, on the monotonic clock.
        ready_at: When the child became ready, on the monotonic clock; None before that.
    """

    pid: int
    up: LinePipe
    down: Outbox
    born_at: float
    state: State = State.STARTING
    owners: list[str] = field(default_factory=list)
    limit: Limit | None = None
    reason: Reason | None = None
    kill_at: float | None = None
    ready_at: float | None = None

    @property
    def is_ready(self) -> bool:
        """True while the child is alive, has started, and reads the parent's messages."""
        return self.state not in _DEAF

    @property
    def is_staying(self) -> bool:
        """True if the child counts towards the pool's size: it runs jobs or soon will, and is not about to end."""
        return self.reason is None and self.state in (State.STARTING, State.READY, State.FREEZING)

    @property
    def is_freezable(self) -> bool:
        """True if the child may be running a job, even if it is leaving after that."""
        return self.state in (State.READY, State.LEAVING)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the child has ended: another process may have its PID by now."""
        if self.state is not State.DEAD:
            # It may have ended just now.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def note_ready(self) -> None:
        """The child reports that it takes jobs."""
        self.ready_at = monotonic()
        if self.state is State.STARTING:
            self.state = State.READY
        elif self.state is State.CANCELLED:
            self.state = State.LEAVING

    def note_leaving(self, kill_at: float) -> bool:
        """The child reports that it stops. Returns True if the parent has not asked it to."""
        if self.reason is not None or not self.is_ready:
            return False
        self._go(Reason.STOPPED, kill_at)
        return True

    def stop(self, reason: Reason, kill_at: float) -> None:
        """
        Ask the child to stop. If it is asked again, it no longer waits for its jobs.

        A frozen child reacts once it is resumed.
        """
        self._go(reason, kill_at)
        self.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Send SIGSTOP. A child on another core takes a moment to stop."""
        self.state = State.FREEZING
        self.send_signal(signal.SIGSTOP)

    def note_frozen(self) -> None:
        """The child is stopped, all its messages have been read, and its job has not ended."""
        self.state = State.FROZEN

    def thaw(self) -> None:
        """Resume the child, unless it was killed."""
        if self.state not in _STANDING_STILL:
            return
        self.state = State.READY if self.reason is None else State.LEAVING
        self.send_signal(signal.SIGCONT)

    def begin_order(self, limit: Limit) -> None:
        """Begin to terminate the child's job. A job that has survived a signal is already settled."""
        before = self.limit
        if before is not None:
            limit.beneath = before.beneath if before.is_order else before
            limit.is_settled = before.is_settled
        self.limit = limit

    def pass_signal(self, limit: Limit) -> None:
        """Have the child deliver the signal that should end its job, which has been settled."""
        self.limit = limit.after_signal()
        self.down.write("SIGNAL", str(limit.signal_number))
        self.thaw()

    def kill(self, reason: Reason) -> None:
        """Kill the child with SIGKILL."""
        self.state, self.reason, self.limit, self.kill_at = State.KILLED, reason, None, None
        self.send_signal(signal.SIGKILL)

    def note_end(self, exit_code: int) -> End:
        """
        Record that the child has ended, and return how.

        If it did not announce its end, it crashed, whatever its exit code: a job may call `os._exit(0)`.
        """
        was, self.state = self.state, State.DEAD
        if was is State.CANCELLED:
            return End.CANCELLED
        is_by_signal = self.limit is not None and self.limit.is_settled
        if self.reason is not None or is_by_signal:
            return End.LEFT if exit_code == 0 else End.CUT_SHORT
        return End.FAILED_START if was is State.STARTING else End.CRASHED

    def _go(self, reason: Reason, kill_at: float) -> None:
        if self.reason is None:
            self.reason, self.kill_at = reason, kill_at
        if self.state is State.STARTING:
            self.state = State.CANCELLED
        elif self.state is State.READY:
            self.state = State.LEAVING


def rss_kb_of(pid: int) -> int:
    """The resident memory of a process in KB; 0 if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def signal_name(number: int) -> str:
    """A signal's name for the log."""
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most real-time signals have no name.
        return f"signal {number}"
