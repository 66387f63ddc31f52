"""A child of `--processes N`: a worker process that talks to its parent, which reports dead siblings to it."""

import os
import signal
import time
from collections.abc import Callable

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.main_thread import run_worker
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.prefork.child_process import terminated_by
from sidekiq_py.engine.prefork.memory import settle_memory
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.errors import ConfigError, RedisConnectionError, UnsupportedRedisError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.job_path import in_flight

_LIMIT_LOOK_SECONDS = 0.2
_SETTLE_AGAIN_SECONDS = 1.0

MakeLauncher = Callable[[Callable[[str], None]], Launcher]


def run_child(
    parent: Parent, make_launcher: MakeLauncher, handle: Callable[[Launcher, str], str] = lambda launcher, text: ""
) -> int:
    """
    Run a worker until it is asked to stop or the parent is gone. Returns the exit code.

    Before it raises an error about its settings, it tells the parent that another child would not start either.

    Args:
        make_launcher: Imports the program and returns a launcher. The launcher calls the function that it is given with
            the name of each owner that it registers.
        handle: Called with each message or question of a sidecar, one at a time; returns the answer.
    """
    try:
        return _run(parent, make_launcher, handle)
    except Exception as error:
        # The program's own import may have raised it.
        if _is_about_settings(error) or _is_about_settings(error.__cause__):
            parent.say("REFUSED")
        raise


def _is_about_settings(error: BaseException | None) -> bool:
    if isinstance(error, RedisConnectionError | UnsupportedRedisError):
        return not error.may_pass_at_start
    # The boot checks turn a reply of Redis that lasts into one of these. Another reply may be about the program's keys.
    return isinstance(error, ConfigError)


def _run(parent: Parent, make_launcher: MakeLauncher, handle: Callable[[Launcher, str], str]) -> int:
    # Leave the terminal's foreground group, so that Ctrl-C reaches only the parent, which then asks the children once.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Only the parent talks to systemd.
    os.environ.pop("NOTIFY_SOCKET", None)
    launcher = make_launcher(lambda owner: parent.say("OWNER", owner))
    watch = _Watch(parent)
    launcher.termination.watch_hard_limits(watch)

    relayed = CallbackThread()

    def handle_message(message: Message) -> None:
        # A sidecar's request may take long and runs in another thread: a dead sibling's jobs must not wait behind it.
        match message.word, message.details:
            case "TELL", text:
                relayed.call(lambda: handle(launcher, " ".join(text)))
            case "ASK", (number, *text):
                relayed.call(lambda: parent.say("ANSWER", number, handle(launcher, " ".join(text))))
            case "LOAD", asked:
                relayed.call(lambda: parent.say("LOAD", *map(str, launcher.reconfiguration.load("waiting" in asked))))
            case "DEAD", (owner,):
                # Confirm only now: if this thread waited long for the interpreter lock, the parent has asked another
                # child.
                launcher.declare_dead(owner)
                parent.say("HEARD", owner)
            case "QUIET", ():
                launcher.signals.put("TSTP")
            case "SIGNAL", (number,):
                launcher.termination.send_signal_to_job(int(number), launcher.signals.send_to_job)
            case "KILLED", (limit, owner, *field):
                job = " ".join(field).encode(errors="surrogateescape")
                settled = launcher.termination.settle_past_time_limit(owner, job, limit)
                parent.say("SETTLED", {True: "yes", False: "no", None: "later"}[settled], owner, *field)

    def stop_without_parent() -> None:
        launcher.signals.put("TERM")
        watch.enforce_limit(launcher.termination.settle_past_time_limit)

    parent.listen(handle_message, on_end=stop_without_parent)
    settle_memory()
    return run_worker(
        launcher,
        on_ready=lambda: parent.say("READY"),
        # A child that ends without this message has crashed: a job may end its process with exit code 0.
        on_stop=lambda name: parent.say("LEAVING", name),
    )


class _Watch:
    """Reports jobs that have a hard limit to the parent."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        # When the running job is past its limit, and what is said about it; None if it has no limit.
        self._running: tuple[float, str, str, bytes] | None = None

    def begin(self, unit: UnitOfWork, seconds: float) -> None:
        """Report that a job with a hard limit starts."""
        job = _job_of(unit)
        if job is not None:
            self._running = (monotonic() + seconds, repr(seconds), *job)
            self._say("BEGIN", repr(seconds), *job)

    def terminate(self, unit: UnitOfWork, signal_number: int) -> None:
        """Ask the parent to have the running job ended."""
        job = _job_of(unit)
        if job is not None:
            self._say("TERMINATE", terminated_by(signal_number), *job)

    def _say(self, word: str, limit: str, owner: str, field: bytes) -> None:
        self._parent.say(word, limit, owner, field.decode(errors="surrogateescape"))

    def replace(self) -> None:
        """Ask the parent to replace this process, which takes no more jobs."""
        self._parent.say("RENEW")

    def end(self) -> None:
        """Report that the job has ended; it is not settled yet."""
        self._running = None
        self._parent.say("END")

    def enforce_limit(self, settle: Callable[[str, bytes, str], bool | None]) -> None:
        """
        Settle the job of this process as failed once it is past its limit, and kill the process. Without the parent
        nobody else does, and a stop that waits for the job might never end.

        Args:
            settle: `Termination.settle_past_time_limit`.
        """
        while True:
            running = self._running
            if running is not None and monotonic() >= running[0]:
                _, limit, owner, field = running
                settled = settle(owner, field, limit)
                # It may run without being in flight: the worker counted as dead, or Redis has lost its data.
                if settled or (settled is False and self._running is running):
                    log.error(
                        "the job is past its hard limit, and the parent process is gone: this process ends itself"
                    )
                    os.kill(os.getpid(), signal.SIGKILL)
                # Redis is unreachable, which each try reports to the error handlers; or the job has just ended.
                time.sleep(_SETTLE_AGAIN_SECONDS)
            time.sleep(_LIMIT_LOOK_SECONDS)


def _job_of(unit: UnitOfWork) -> tuple[str, bytes] | None:
    """The owner and the in-flight field by which others find the job; None if nobody can."""
    owner = unit.owner.name if unit.owner is not None else unit.kept_by
    if not owner:
        return None
    return owner, in_flight.public_field(unit.field, unit.listed if unit.owner is not None else None)
