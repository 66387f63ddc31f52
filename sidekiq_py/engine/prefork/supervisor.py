"""
The parent of `--processes N`.

It forks the children (`forks.py`, `fleet.py`), watches them and replaces those that die. It reports the owner of a dead
child to another child, so that its jobs are recovered at once (`dead_owners.py`). The parent has one thread, imports
nothing of the program and never connects to Redis, so nothing in it can hang. Each of its steps is guarded: whatever a
child does, the parent goes on.

- A child that announces its end was stopped on purpose (from a Web UI) and is not replaced before the next HUP. When
  all children have ended that way, the parent exits with 0. A child that ends without announcing it has crashed,
  whatever its exit code.
- If no child ever becomes ready, the parent gives up after a few tries, or at once if the settings are refused, and
  exits with the exit code of the last one.
- A child over the memory limit is asked to stop and replaced (`memory_limit.py`).
- HUP restarts the children one by one with freshly imported code, each only when the one before it is ready
  (`rolling_restart.py`).
- A child that reports that it has run its share of jobs is stopped and replaced.
- QUIT, if it is watched, stops without waiting for busy jobs; each child handles it by itself.
- If a job is past its hard limit, its child is frozen, another child settles the job as failed, and the frozen child is
  killed and replaced (`hard_limits.py`).
- The wanted number of children may change at any time (`pool_size.py`): missing ones are started; if there are too
  many, idle ones exit first, and busy ones finish their jobs before they exit.
- Sidecars, up to two, are kept running beside the children until the worker is asked to stop (`sidecar.py`).
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum

from sidekiq_py import program
from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config
from sidekiq_py.engine.prefork.child_process import ChildProcess, End, Limit, Reason, signal_name
from sidekiq_py.engine.prefork.child_starts import ChildStarts
from sidekiq_py.engine.prefork.dead_owners import DeadOwners
from sidekiq_py.engine.prefork.fleet import Fleet
from sidekiq_py.engine.prefork.forks import Ended, Forks, Run
from sidekiq_py.engine.prefork.hard_limits import HardLimits
from sidekiq_py.engine.prefork.memory_limit import MemoryLimit
from sidekiq_py.engine.prefork.parent_service import ParentService
from sidekiq_py.engine.prefork.pipes import Message
from sidekiq_py.engine.prefork.pool_size import PoolSize
from sidekiq_py.engine.prefork.preload import prepare_to_fork
from sidekiq_py.engine.prefork.rolling_restart import RollingRestart
from sidekiq_py.engine.prefork.scaling import ScalingPolicy
from sidekiq_py.engine.prefork.sidecar import Role, Sidecar
from sidekiq_py.engine.signals import USR1_DUMPS, SignalInbox
from sidekiq_py.logs import log

# How long after the shutdown timeout a child is killed.
_STOP_MORE_SECONDS = 10
# An error that repeats at once must not use up the CPU or fill the disk with tracebacks.
_AFTER_ERROR_SECONDS = 0.5
_DIED_YOUNG = "a child died soon after its start"


class _Phase(Enum):
    """What the children are supposed to do."""

    WORKING = "take jobs"
    QUIET = "take no more jobs"
    STOPPING = "exit"


class Supervisor:
    """
    Runs the children and keeps their number.

    Args:
        processes: The wanted number of children.
        run_child: Called in each child; returns its exit code.
        memory_limit_kb: A child with more resident memory than this is replaced; None means no limit.
        before_fork: Called in the parent before each child is forked.
        on_ready: Called in the parent once, when all children are ready.
        on_signal: Called with the name of each signal to the parent, such as `TERM`, after the children have been told.
        more_signals: Names of signals to watch in addition to those of any worker: `HUP`, `QUIT`.
        meanings: Signals to the parent to treat as other signals.
        sidecar: What the sidecar does; None means there is no sidecar.
        second_sidecar: What another one does. The children do not answer it.
        scaling: Changes the number of children by load.
    """

    def __init__(
        self,
        config: Config,
        processes: int,
        run_child: Run,
        memory_limit_kb: int | None,
        *,
        before_fork: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
        on_signal: Callable[[str], None] = lambda name: None,
        more_signals: Sequence[str] = ("HUP",),
        meanings: Mapping[str, str] | None = None,
        sidecar: Role | None = None,
        second_sidecar: Role | None = None,
        scaling: ScalingPolicy | None = None,
    ) -> None:
        self._phase = _Phase.WORKING
        self._exit_code = 0
        self._signals = SignalInbox({**(USR1_DUMPS if config.usr1_dumps_threads else {}), **(meanings or {})})
        self._more_signals = more_signals
        self._on_signal = on_signal
        self._on_ready: Callable[[], None] | None = on_ready
        self._forks = Forks()
        stop_seconds = config.shutdown_timeout_seconds + _STOP_MORE_SECONDS
        self._fleet = Fleet(self._forks, run_child, stop_seconds=stop_seconds, before_fork=before_fork)
        self.size = PoolSize(processes, scaling)
        self._starts = ChildStarts(processes)
        self._hard_limits = HardLimits(self._fleet)
        self._dead_owners = DeadOwners(self._fleet)
        self._rolling = RollingRestart(self._fleet)
        self._memory = MemoryLimit(self._fleet, memory_limit_kb)
        self._sidecar = Sidecar(sidecar, self._forks, self._fleet)
        self._sidecars = (self._sidecar, Sidecar(second_sidecar, self._forks, self._fleet))
        self._service = ParentService(os.environ)

    def __repr__(self) -> str:
        return f"<Supervisor {self._phase.name} {self._fleet}>"

    @property
    def children(self) -> list[ChildProcess]:
        """All living children, including those that are stopping."""
        return self._fleet.children

    def restart(self) -> None:
        """
        Restart the children one by one with freshly imported code. Children that were stopped from a Web UI are started
        again.
        """
        if self._phase is _Phase.STOPPING:
            return
        self._phase = _Phase.WORKING
        self.size.restore()
        with _going_on():
            program.extensions.look_again()
        self._rolling.begin()

    def ask_to_stop(self, name: str = "TERM") -> None:
        """Stop as if the signal *name* had been received. TERM does nothing if the parent is stopping already."""
        if name != "TERM" or not self._is_stopping:
            self._signals.put(name)

    def run(self) -> int:
        """Run until all children have ended, and return the exit code. Call it only from the main thread."""
        self._signals.watch(("CHLD", *self._more_signals))
        with _going_on():
            prepare_to_fork()
        while not self._is_over:
            for step in (
                self._keep_sidecars,
                self._start_missing,
                self._wait,
                self._reap,
                self._fleet.kill_late,
                self._hard_limits.step,
                self._dead_owners.step,
                self._dismiss_helpers,
                self._memory.step,
                self._roll_on,
                self._shed,
                self._report_readiness,
            ):
                with _going_on():
                    step()
        for sidecar in self._sidecars:
            sidecar.stop()
        return self._exit_code

    @property
    def _is_stopping(self) -> bool:
        return self._phase is _Phase.STOPPING

    @property
    def _is_over(self) -> bool:
        return not self._fleet.children and (self._is_stopping or self.size.wanted == 0)

    # ---- children that start and end

    @property
    def _are_missing(self) -> bool:
        return not self._is_stopping and len(self._fleet.staying) < self.size.wanted

    def _start_missing(self) -> None:
        while self._are_missing and monotonic() >= self._starts.next_at:
            try:
                self._fleet.start()
            except OSError as error:
                self._note_failed_start(0.0, 1, f"a child could not be forked: {error}")

    def _reap(self) -> None:
        for ended in self._forks.reap():
            with _going_on():
                sidecar = self._sidecar_of(ended.process)
                if sidecar is not None:
                    sidecar.note_end(ended.exit_code, is_stopping=self._is_stopping)
                else:
                    self._handle_exit(ended)

    def _keep_sidecars(self) -> None:
        if not self._is_stopping:
            for sidecar in self._sidecars:
                sidecar.keep()

    def _sidecar_of(self, process: ChildProcess) -> Sidecar | None:
        return next((sidecar for sidecar in self._sidecars if sidecar.process is process), None)

    def _handle_exit(self, ended: Ended) -> None:
        child = ended.process
        for message in ended.last_words:
            self._handle_message(child, message)
        self._fleet.remove(child)
        end = child.note_end(ended.exit_code)
        # In a stop, the children that left cleanly are many, and have nothing to recover.
        if not (self._is_stopping and end is End.LEFT):
            for owner in child.owners:
                self._dead_owners.add(owner)
        self._dead_owners.note_end(child)
        self._sidecar.note_gone(child)
        self._hard_limits.note_gone(child)
        self._judge(child, end, ended.exit_code)
        self._rolling.note_end(child, end)

    def _judge(self, child: ChildProcess, end: End, code: int) -> None:
        if end is End.CANCELLED:
            return
        if end is not End.LEFT:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            then = "; its jobs go back to their queues"
            if end is End.FAILED_START:
                then = " before it was ready"
            elif child.reason is Reason.PAST_LIMIT:
                # Mostly only those that had not started: the job that it was killed for has failed.
                then = "; the jobs that it still had in flight go back to their queues"
            log.warning("child %d %s%s", child.pid, how, then)
        if end in (End.LEFT, End.CUT_SHORT):
            self._starts.note_stop()
            return
        # The import of a large program takes seconds, in which the child did not work.
        age = monotonic() - (child.ready_at or child.born_at)
        if end is End.FAILED_START:
            self._note_failed_start(age, code)
        else:
            self._note_pause(self._starts.note_death(was_ready=True, age_seconds=age, now=monotonic()))

    def _note_failed_start(self, age_seconds: float, code: int, how: str = _DIED_YOUNG) -> None:
        pause = self._starts.note_death(was_ready=False, age_seconds=age_seconds, now=monotonic())
        if self._starts.has_given_up:
            if self._starts.are_refused:
                log.error("the worker ends, because its settings are refused; the error is logged above")
            else:
                log.error("no child has started in %d tries; their errors are logged above", self._starts.tries)
            self._exit_code = max(code, 1)
            self._stop()
        else:
            self._note_pause(pause, how)

    def _note_pause(self, pause_seconds: float | None, how: str = _DIED_YOUNG) -> None:
        if pause_seconds is not None:
            log.warning("%s; waiting %.1f s before another one starts", how, pause_seconds)

    # ---- messages and signals

    def _wait(self) -> None:
        for process, message in self._forks.exchange(self._signals.fd, self._pause_seconds()):
            self._handle_message(process, message)
        while (name := self._signals.next(0)) is not None:
            with _going_on():
                self._handle_signal(name)

    def _pause_seconds(self) -> float | None:
        moments = [
            *self._hard_limits.moments(),
            self._fleet.next_kill_at(),
            self._dead_owners.next_at(),
            self._memory.next_at,
            self._service.next_at,
            *(() if self._is_stopping else (sidecar.next_start_at for sidecar in self._sidecars)),
            self._starts.next_at if self._are_missing else None,
            None if self._is_stopping else self.size.due_at(self._may_go(), may_scale=self._may_scale),
        ]
        known = [moment for moment in moments if moment is not None]
        return max(0.0, min(known) - monotonic()) if known else None

    def _handle_message(self, process: ChildProcess, message: Message) -> None:
        """Handle a message, which may be anything: a job can write to every file that its process has open."""
        try:
            sidecar = self._sidecar_of(process)
            if sidecar is not None:
                sidecar.handle_message(message)
            else:
                self._handle_child_message(process, message)
        except Exception as error:  # noqa: BLE001 — no message may stop the parent
            log.warning("ignoring a message from process %d, %.200r: %s", process.pid, message, error)

    def _handle_child_message(self, child: ChildProcess, message: Message) -> None:
        match message.word, message.details:
            case "OWNER", (owner,):
                child.owners.append(owner)
            case "READY", ():
                self._note_ready(child)
            case "REFUSED", ():
                self._starts.are_refused = True
            case "BEGIN", (seconds, owner, *job):
                child.limit = Limit(seconds, owner, " ".join(job), monotonic() + float(seconds))
            case "TERMINATE", (order, owner, *job):
                child.begin_order(Limit(order, owner, " ".join(job), monotonic()))
            case "END", ():
                child.limit = None
            case "SETTLED", (answer, owner, *job):
                self._hard_limits.note_settled(child, answer, owner, " ".join(job))
            case "HEARD", (owner,):
                self._dead_owners.note_confirmed(owner, child)
            case "LOAD", (running, *waiting):
                self.size.note_load(child, int(running), *map(int, waiting[:1]))
            case "RENEW", ():
                self._fleet.stop(child, Reason.REPLACED)
            case "LEAVING", _:
                self._note_leaving(child)
            case "ANSWER", (number, *text):
                self._sidecar.pass_answer(child, number, text)
            case "SAY", text:
                self._sidecar.pass_on(child, text)
            case _:
                raise ValueError("no such message from a child")

    def _note_ready(self, child: ChildProcess) -> None:
        child.note_ready()
        self._starts.note_ready()
        if self._phase is _Phase.QUIET:
            child.send_signal(signal.SIGTSTP)

    def _note_leaving(self, child: ChildProcess) -> None:
        if self._fleet.note_leaving(child) and not self._is_stopping:
            self.size.note_stopped()
            log.info("child %d was stopped and is not replaced; children left: %d", child.pid, self.size.wanted)

    def _handle_signal(self, name: str) -> None:
        if name in ("TERM", "INT"):
            self._stop()
        elif name == "QUIT":
            # A child that is asked to stop again would not wait for its jobs. How long QUIT waits is the child's own.
            if not self._is_stopping:
                self._stop()
            self._send_to_ready(signal.SIGQUIT)
        elif name == "HUP":
            self.restart()
        elif name in ("TSTP", "USR1", "USR2", "TTIN"):
            if name in ("TSTP", "USR1") and not self._is_stopping:
                self._phase = _Phase.QUIET
            self._send_to_ready(getattr(signal, f"SIG{name}"))
        with _going_on():
            self._on_signal(name)

    def _send_to_ready(self, number: int) -> None:
        # The signal would suspend or kill a child that still imports the program.
        for child in self._fleet.ready:
            child.send_signal(number)

    def _report_readiness(self) -> None:
        is_ready = len(self._fleet.ready) >= self.size.wanted
        self._service.step(is_ready=is_ready)
        if is_ready and self._on_ready is not None:
            on_ready, self._on_ready = self._on_ready, None
            on_ready()

    # ---- stopping children

    def _stop(self) -> None:
        if not self._is_stopping:
            self._service.stopping()
        self._phase = _Phase.STOPPING
        self._fleet.is_stopping = True
        self._rolling.cancel()
        for child in self._fleet.children:
            self._fleet.stop(child, Reason.ALL_STOP)

    def _dismiss_helpers(self) -> None:
        """Stop the helpers that were started during the stop, once they have settled the jobs of others."""
        if self._is_stopping:
            for child in self._may_go():
                self._fleet.stop(child, Reason.ALL_STOP)

    @property
    def _may_scale(self) -> bool:
        return self._phase is _Phase.WORKING

    def _may_go(self) -> list[ChildProcess]:
        """The children that may be stopped: not the new child of a restart, and not one involved in settling a job."""
        busy = (self._rolling.newcomer, *self._hard_limits.involved)
        return [child for child in self._fleet.staying if child not in busy]

    def _shed(self) -> None:
        if self._is_stopping:
            return
        for child in self.size.step(self._may_go(), monotonic(), may_scale=self._may_scale):
            log.info("child %d is stopped, because only %d should run", child.pid, self.size.wanted)
            # No other child replaces it, because `wanted` is smaller.
            self._fleet.stop(child, Reason.REPLACED)

    def _roll_on(self) -> None:
        if not self._is_stopping:
            self._rolling.step()


@contextmanager
def _going_on() -> Iterator[None]:
    """Log any error instead of raising it: if the parent ended, its children would stop too."""
    try:
        yield
    except Exception:  # noqa: BLE001 — as above
        log.exception("Internal error in the parent process, which goes on")
        time.sleep(_AFTER_ERROR_SECONDS)
