"""
The parent of `--processes N`.

It forks the children, watches them, replaces those that die, and tells another child which owner died, so that its
jobs come back at once. It has one thread, imports nothing of the program and never connects to Redis: there is
nothing in it that could hang.

- A child that ends by itself with exit code 0 was stopped on purpose (from a Web UI) and is not replaced; when all
have ended, the parent ends with 0.
- Where no child ever becomes ready, the parent gives up after a few tries, with the exit code of the last.
- A child over the memory limit is asked to stop and replaced.
- HUP restarts the children one after the other, each with freshly imported code; the next one only when its
forerunner is ready.
- A child that says that it has run its share of jobs is stopped and replaced.
- QUIT, where it is asked for, stops without waiting for busy jobs; a child handles it by itself.
- A job past its hard limit: the child is frozen, another one settles the job as failed, then the child is killed and
replaced (`hard_limits.py`).
- How many are wanted may change at any time (`family_size.py`): missing ones are started, of too many the idle go
first, and busy ones finish what they run.
- A companion, where one is asked for, is kept beside the children (`companion.py`).
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config
from sidekiq_py.engine.child_starts import ChildStarts
from sidekiq_py.engine.companion import Companion, Role
from sidekiq_py.engine.family import LinePipe, Message, Outbox, Parent, readable
from sidekiq_py.engine.family_member import Child, Limit, rss_kb_of, send_signal
from sidekiq_py.engine.family_size import FamilySize
from sidekiq_py.engine.hard_limits import HardLimits
from sidekiq_py.engine.process_end import end_process
from sidekiq_py.engine.scaling import ScalingPolicy
from sidekiq_py.engine.signals import USR1_DUMPS, SignalInbox
from sidekiq_py.engine.systemd import ServiceNotifier, watchdog_seconds

_log = logging.getLogger("sidekiq")

_MEMORY_LOOK_SECONDS = 5.0

RunChild = Callable[[Parent], int]


class Supervisor:
    """
    Keeps children at work.

    Args:
        run_child: Called in each child, gives its exit code.
        memory_limit_kb: A child that is larger is replaced.
        before_fork: Called in the parent before each child is made.
        on_ready: Called in the parent once all children have been ready.
        on_signal: Told of each signal to the parent, by a name such as `TERM`, before it is obeyed.
        more_signals: Names of signals to watch beside those of any worker: `HUP`, `QUIT`.
        companion: What a process beside the children does.
        scaling: Changes how many children there are by what they have to do.
    """

    def __init__(
        self,
        config: Config,
        processes: int,
        run_child: RunChild,
        memory_limit_kb: int | None,
        *,
        before_fork: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
        on_signal: Callable[[str], None] = lambda name: None,
        more_signals: Sequence[str] = ("HUP",),
        companion: Role | None = None,
        scaling: ScalingPolicy | None = None,
    ) -> None:
        self._config = config
        self._run_child = run_child
        self._memory_limit_kb = memory_limit_kb
        self._children: dict[int, Child] = {}
        self.size = FamilySize(processes, scaling)
        self._orphans: list[str] = []
        self._hard_limits = HardLimits(lambda: self.children, self._staying, self._fork, self._hear)
        self._rolling: list[Child] = []
        self._rolled_in: Child | None = None
        self._starts = ChildStarts(processes)
        self._memory_look_at = 0.0
        self._is_stopping = False
        self._exit_code = 0
        self._is_quiet = False
        self._signals = SignalInbox(USR1_DUMPS if config.usr1_dumps_threads else None)
        self._service = ServiceNotifier(os.environ)
        self._watchdog_seconds = watchdog_seconds(os.environ, os.getpid())
        self._ping_at = 0.0
        self._is_service_ready = False
        self._before_fork = before_fork
        self._on_ready = on_ready
        self._on_signal = on_signal
        self._more_signals = more_signals
        self._was_ready = False
        self._companion = Companion(companion, self._fork_process, lambda: self.children)

    @property
    def children(self) -> list[Child]:
        """All that live, also those that are about to leave."""
        return list(self._children.values())

    def restart(self) -> None:
        """Restart the children one after the other, each with the code that this process has then."""
        _log.info("Restarting %d children one after the other", len(self._staying()))
        self._rolling = self._staying()
        self._is_quiet = False

    def ask_to_stop(self) -> None:
        """As if TERM had come; a stop that is under way goes on as it is."""
        if not self._is_stopping:
            self._signals.put("TERM")

    def run(self) -> int:
        """Run until all children have ended; the exit code. Only in the main thread."""
        self._signals.watch(("CHLD", *self._more_signals))
        while True:
            self._companion.keep()
            self._start_missing()
            if not self._children and (self._is_stopping or self.size.wanted == 0):
                self._companion.stop()
                return self._exit_code
            self._wait()
            self._reap()
            self._kill_late()
            self._hard_limits.enforce()
            self._dismiss_helpers()
            self._look_at_memory()
            self._roll_on()
            self._shed()
            self._tell_program()
            self._tell_service()

    # ---- children

    def _start_missing(self) -> None:
        while not self._is_stopping and len(self._staying()) < self.size.wanted and monotonic() >= self._starts.next_at:
            self._fork()

    def _staying(self) -> list[Child]:
        return [child for child in self._children.values() if not child.is_leaving]

    def _fork(self) -> Child:
        self._before_fork()
        child = self._fork_process(self._run_child)
        self._children[child.pid] = child
        self._hand_orphans_to(child)
        return child

    def _fork_process(self, run: RunChild) -> Child:
        up_read, up_write = os.pipe()
        down_read, down_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become_child(run, up_read, up_write, down_read, down_write)
        os.close(up_write)
        os.close(down_read)
        return Child(pid, LinePipe(up_read), Outbox(down_write), monotonic())

    def _hand_orphans_to(self, child: Child) -> None:
        for owner in self._orphans:
            child.down.write("DEAD", owner)
        self._orphans.clear()

    def _become_child(self, run: RunChild, up_read: int, up_write: int, down_read: int, down_write: int) -> None:
        code = 70
        try:
            for child in self._children.values():
                # With a sibling's pipe open here, the sibling would not hear of the parent's end.
                child.up.close()
                child.down.close()
            self._companion.close_pipes()
            os.close(up_read)
            os.close(down_write)
            code = run(Parent(LinePipe(up_write), LinePipe(down_read)))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 — whatever it is, a child must never go on as a second parent
            _log.exception("a child process could not start")
        finally:
            end_process(code)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._mourn(child, os.waitstatus_to_exitcode(status))
            elif self._companion.is_process(pid):
                self._companion.note_end(os.waitstatus_to_exitcode(status))

    def _mourn(self, child: Child, code: int) -> None:
        messages = child.up.read() if readable([child.up.fd], 0) else None
        for message in messages or ():
            self._hear(child, message)
        child.up.close()
        child.down.close()
        self._companion.note_gone(child)
        self._hard_limits.note_gone(child)
        if child in self._rolling:
            self._rolling.remove(child)
        for owner in child.owners:
            self._tell_of_death(owner)
        self._judge_end(child, code)

    def _judge_end(self, child: Child, code: int) -> None:
        was_rolled_in = self._rolled_in is child
        if was_rolled_in:
            self._rolled_in = None
        if (self._is_stopping or child.is_leaving) and not child.is_ready:
            # It was still importing the program, and heeds TERM as any process does.
            return
        if code == 0 and (child.is_ready or child.is_leaving):
            self._note_stop(child)
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        when = "" if child.is_ready else " before it was ready"
        _log.warning("child %d %s%s; its jobs go back to their queues", child.pid, how, when)
        if was_rolled_in:
            self._give_up_rolling()
        self._note_death(child, code)

    def _note_stop(self, child: Child) -> None:
        if not child.is_to_be_replaced and not self._is_stopping:
            self.size.note_stopped()
            _log.info("child %d was stopped and is not replaced; %d stay", child.pid, self.size.wanted)
        self._starts.note_stop()

    def _note_death(self, child: Child, code: int) -> None:
        now = monotonic()
        pause = self._starts.note_death(was_ready=child.is_ready, age_seconds=now - child.born_at, now=now)
        if self._starts.are_hopeless:
            _log.error("no child has started in %d tries; each has said above what stopped it", self._starts.tries)
            self._exit_code = max(code, 1)
            self._stop()
        elif pause is not None:
            _log.warning("a child could not start, or died at once; the next one starts in %.1f s", pause)

    def _tell_of_death(self, owner: str) -> None:
        for child in self._staying():
            if child.is_ready and child.down.write("DEAD", owner):
                return
        self._orphans.append(owner)

    # ---- what comes in

    def _wait(self) -> None:
        processes = [*self._children.values(), *self._companion.processes]
        by_fd = {process.up.fd: process for process in processes}
        takers = {process.down.fd: process.down for process in processes if process.down.waiting_bytes}
        for fd in readable([self._signals.fd, *by_fd], self._pause_seconds(), writers=takers):
            if fd in takers:
                takers[fd].flush()
            child = by_fd.get(fd)
            if child is None:
                continue
            messages = child.up.read()
            if messages is None:
                # The pipe has ended and the process has not, or not yet: do not spin on it.
                time.sleep(0.01)
                continue
            for message in messages:
                self._hear(child, message)
        while (name := self._signals.next(0)) is not None:
            self._obey(name)

    def _pause_seconds(self) -> float | None:
        now = monotonic()
        moments = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        moments += self._hard_limits.moments()
        if self._memory_limit_kb is not None:
            moments.append(self._memory_look_at)
        if self._service.is_wanted and self._watchdog_seconds is not None:
            moments.append(self._ping_at)
        if len(self._staying()) < self.size.wanted and not self._is_stopping:
            moments.append(self._starts.next_at)
        if not self._is_stopping and (at := self.size.due_at(self._may_go(), may_scale=not self._is_quiet)) is not None:
            moments.append(at)
        if self._companion.next_start_at is not None:
            moments.append(self._companion.next_start_at)
        return max(0.0, min(moments) - now) if moments else None

    def _hear(self, child: Child, message: Message) -> None:
        if child in self._companion.processes:
            self._companion.hear(message)
        elif message.word == "OWNER":
            child.owners.append(message.details[0])
        elif message.word == "READY":
            child.is_ready = True
            self._starts.note_ready()
            # Nobody was, when these died; the next child may be a pause away.
            self._hand_orphans_to(child)
            if self._is_quiet and child.pid in self._children:
                send_signal(child.pid, signal.SIGTSTP)
        elif message.word == "BEGIN":
            seconds, owner, job = message.details[0], message.details[1], " ".join(message.details[2:])
            child.limit = Limit(seconds, owner, job, monotonic() + float(seconds))
        elif message.word == "TERMINATE":
            limit, owner, job = message.details[0], message.details[1], " ".join(message.details[2:])
            child.limit = Limit(limit, owner, job, monotonic())
        elif message.word == "LOAD":
            self.size.hear(child, *map(int, message.details))
        elif message.word == "END":
            child.limit = None
        elif message.word == "RENEW":
            self._replace(child)
        elif message.word in ("ANSWER", "SAY"):
            self._companion.pass_on(child, message)
        elif message.word == "SETTLED":
            answer, owner, job = message.details[0], message.details[1], " ".join(message.details[2:])
            self._hard_limits.note_settled(child, answer, owner, job)

    def _obey(self, name: str) -> None:
        self._on_signal(name)
        if name in ("TERM", "INT"):
            self._stop()
        elif name == "QUIT":
            self._stop()
            for child in self._children.values():
                if child.is_ready:
                    send_signal(child.pid, signal.SIGQUIT)
        elif name == "HUP":
            self.restart()
        elif name in ("TSTP", "USR1", "USR2", "TTIN"):
            self._is_quiet = self._is_quiet or name in ("TSTP", "USR1")
            # A child that still imports the program would be stopped or ended by these.
            for child in self._children.values():
                if child.is_ready:
                    send_signal(child.pid, getattr(signal, f"SIG{name}"))

    def _tell_program(self) -> None:
        if not self._was_ready and sum(child.is_ready for child in self._children.values()) >= self.size.wanted:
            self._was_ready = True
            self._on_ready()

    def _tell_service(self) -> None:
        """Tell systemd, if it listens. By this thread: the parent has no other."""
        if not self._service.is_wanted:
            return
        if not self._is_service_ready and sum(child.is_ready for child in self._children.values()) >= self.size.wanted:
            self._is_service_ready = self._service.send("READY=1")
        if self._watchdog_seconds is not None and monotonic() >= self._ping_at:
            self._ping_at = monotonic() + self._watchdog_seconds / 2
            self._service.send("WATCHDOG=1")

    # ---- stopping children

    def _stop(self) -> None:
        if not self._is_stopping:
            self._service.stopping()
        self._is_stopping = True
        self._rolling.clear()
        deadline = self._config.shutdown_timeout_seconds + 10
        for child in self.children:
            self._ask_to_stop(child, within_seconds=deadline)

    def _ask_to_stop(self, child: Child, *, within_seconds: float) -> None:
        child.is_leaving = True
        if child.kill_at is None:
            child.kill_at = monotonic() + within_seconds
        send_signal(child.pid, signal.SIGTERM)
        if child.limit is not None and child.limit.frozen_until is not None:
            send_signal(child.pid, signal.SIGCONT)

    def _dismiss_helpers(self) -> None:
        """Who was started while all stop, to settle the job of another, stops when that is done."""
        if self._is_stopping:
            for child in self._may_go():
                self._ask_to_stop(child, within_seconds=self._config.shutdown_timeout_seconds + 10)

    def _kill_late(self) -> None:
        for child in self._children.values():
            if child.kill_at is not None and monotonic() >= child.kill_at:
                send_signal(child.pid, signal.SIGKILL)
                child.kill_at = None

    def _look_at_memory(self) -> None:
        if self._memory_limit_kb is None or monotonic() < self._memory_look_at:
            return
        self._memory_look_at = monotonic() + _MEMORY_LOOK_SECONDS
        for child in self._staying():
            size = rss_kb_of(child.pid)
            # One that still imports the program is replaced by another that does the same.
            if child.is_ready and size > self._memory_limit_kb:
                _log.warning("child %d holds %d MB, more than the limit; it is replaced", child.pid, size // 1024)
                self._replace(child)

    def _replace(self, child: Child) -> None:
        child.is_to_be_replaced = True
        self._ask_to_stop(child, within_seconds=self._config.shutdown_timeout_seconds + 10)

    def _may_go(self) -> list[Child]:
        """Of whom there may be too many: neither the extra child of a restart nor one that settles for another."""
        busy = (self._rolled_in, *self._hard_limits.involved)
        return [child for child in self._staying() if child not in busy]

    def _shed(self) -> None:
        if self._is_stopping:
            return
        for child in self.size.step(self._may_go(), monotonic(), may_scale=not self._is_quiet):
            _log.info("child %d goes, as %d are enough", child.pid, self.size.wanted)
            if child in self._rolling:
                self._rolling.remove(child)
            # Its place is gone with it.
            self._replace(child)

    def _roll_on(self) -> None:
        """A rolling restart: the new child first, then the old one goes."""
        if not self._rolling or self._is_stopping:
            self._rolled_in = None
            return
        if self._rolled_in is None:
            self._rolled_in = self._fork()
        elif self._rolled_in.is_ready:
            self._replace(self._rolling.pop(0))
            self._rolled_in = None

    def _give_up_rolling(self) -> None:
        _log.error("the restarted program does not start; the children that are at work stay as they are")
        self._rolling.clear()
