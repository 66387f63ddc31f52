"""A child process as the parent of `--processes N` sees it: a state machine."""

import math
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from sidekiq_py.engine.prefork.pipes import LinePipe, Outbox
from sidekiq_py.engine.run.past_time_limit import BY_SIGNAL


def terminated_by(signal_number: int) -> str:
    """Stands for an order to end a job, where the seconds of its hard limit would stand."""
    return f"{BY_SIGNAL}{signal_number}"


class State(Enum):
    """
    Where the life of a child process stands.

        STARTING ──> READY ──> LEAVING
            │          ^ │        ^ │
            │          │ v        │ v
            │        FREEZING   FREEZING     its job is past its time limit, or is to be terminated
            │          ^ │        ^ │
            │          │ v        │ v
            │         FROZEN     FROZEN      back from there: the job had ended by itself
            v            └────┬─────┘
        CANCELLED             v
            └──────────────> KILLED          and from everywhere: DEAD
    """

    STARTING = "imports the program: a signal other than TERM would end or stop it"
    READY = "takes jobs"
    CANCELLED = "was told to stop before it was ready"
    LEAVING = "was told to stop, or has said that it does"
    FREEZING = "was sent SIGSTOP; what it said before is still to be read"
    FROZEN = "stands still until its job is settled by another one"
    KILLED = "was sent SIGKILL"
    DEAD = "has ended"


_DEAF = (State.STARTING, State.CANCELLED, State.KILLED, State.DEAD)
_STANDING_STILL = (State.FREEZING, State.FROZEN)


class Reason(Enum):
    """Why a child is to go."""

    STOPPED = "somebody stopped this child alone, as from a Web UI"
    REPLACED = "another one takes its place"
    ALL_STOP = "the parent stops"
    PAST_LIMIT = "its job is past its time limit, or was terminated"


class End(Enum):
    """What the end of a child was."""

    CANCELLED = "it was not needed any more before it was ready"
    LEFT = "it was told to stop, or said that it would, and did so in order"
    CUT_SHORT = "it was to go, and died instead of leaving in order"
    FAILED_START = "it died before it was ready"
    CRASHED = "nobody wanted it"


@dataclass(slots=True)
class Limit:
    """
    A job that runs under a hard limit, or is to be ended now.

    Args:
        seconds: The limit as the child has told it, or `terminated_by`.
        due: When the job is past it, on the monotonic clock.
        times_asked: How many children were asked to settle it.
        is_settled: It was, and the job goes on: it has survived the signal that it was to be ended by, or has not yet
            been hit by it.
        beneath: The hard limit of a job that is to be ended now.
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
        """Somebody wants the job to end."""
        return self.seconds.startswith(BY_SIGNAL)

    @property
    def signal_number(self) -> int:
        """What its process is sent in the end."""
        return int(self.seconds.removeprefix(BY_SIGNAL)) if self.is_order else signal.SIGKILL

    def after_signal(self) -> "Limit":
        """What holds on for a job that may have survived its signal."""
        return replace(self.beneath or replace(self, due=math.inf), is_settled=True)

    @property
    def reason(self) -> str:
        """Why its process is killed, or sent a signal, for the log."""
        if self.is_order:
            return "a job is ended by remote control"
        return f"a job ran past its hard limit of {self.seconds} s"


@dataclass(slots=True, eq=False)
class ChildProcess:
    """
    A child process.

    Args:
        owners: Under which it has taken jobs.
        limit: Of the job that runs, if it has one.
        reason: Why it is to go; None: it is to stay.
        kill_at: When it is killed if it has not left by then, on the monotonic clock.
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

    @property
    def is_ready(self) -> bool:
        """It has started, lives, and hears what it is told."""
        return self.state not in _DEAF

    @property
    def is_staying(self) -> bool:
        """It is counted on: it runs jobs, or will, and nothing is known that ends it."""
        return self.reason is None and self.state in (State.STARTING, State.READY, State.FREEZING)

    @property
    def is_freezable(self) -> bool:
        """It runs jobs, be it to the last one."""
        return self.state in (State.READY, State.LEAVING)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended: its pid may be another's by now."""
        if self.state is not State.DEAD:
            send_signal(self.pid, number)

    def note_ready(self) -> None:
        """It says that it takes jobs."""
        if self.state is State.STARTING:
            self.state = State.READY
        elif self.state is State.CANCELLED:
            self.state = State.LEAVING

    def note_leaving(self, kill_at: float) -> bool:
        """It says that it stops. True if nobody here told it to."""
        if self.reason is not None or not self.is_ready:
            return False
        self._go(Reason.STOPPED, kill_at)
        return True

    def stop(self, reason: Reason, kill_at: float) -> None:
        """Tell it to stop; told again, it hurries. One that stands still heeds it when it goes on."""
        self._go(reason, kill_at)
        self.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Have it stand still, which takes a moment on another core."""
        self.state = State.FREEZING
        self.send_signal(signal.SIGSTOP)

    def note_frozen(self) -> None:
        """It stands still, all that it said before is read, and its job has not ended."""
        self.state = State.FROZEN

    def thaw(self) -> None:
        """Let it go on where it stood, unless it was killed."""
        if self.state not in _STANDING_STILL:
            return
        self.state = State.READY if self.reason is None else State.LEAVING
        self.send_signal(signal.SIGCONT)

    def begin_order(self, limit: Limit) -> None:
        """Its job is to be ended; one that has survived a signal needs no more settling."""
        before = self.limit
        if before is not None:
            limit.beneath = before.beneath if before.is_order else before
            limit.is_settled = before.is_settled
        self.limit = limit

    def pass_signal(self, limit: Limit) -> None:
        """Its job has been settled: have it sent the signal that is to end it."""
        self.limit = limit.after_signal()
        self.down.write("SIGNAL", str(limit.signal_number))
        self.thaw()

    def kill(self, reason: Reason) -> None:
        """End it at once."""
        self.state, self.reason, self.limit, self.kill_at = State.KILLED, reason, None, None
        self.send_signal(signal.SIGKILL)

    def note_end(self, exit_code: int) -> End:
        """It has ended. Without a word before, that is a crash, whatever the code: a job may call `os._exit(0)`."""
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
    """Resident memory of a process in KB; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def signal_name(number: int) -> str:
    """For the log."""
    try:
        return signal.Signals(number).name
    except ValueError:
        # One of those for real time has no name.
        return f"signal {number}"


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
