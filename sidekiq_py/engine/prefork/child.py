"""A child of `--processes N`: a worker process that hears of its dead siblings from its parent."""

import os
import signal
from collections.abc import Callable

from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.main_thread import run_worker
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.prefork.child_process import terminated_by
from sidekiq_py.engine.prefork.memory import settle_memory
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.redis_access.job_path import in_flight

MakeLauncher = Callable[[Callable[[str], None]], Launcher]


def run_child(
    parent: Parent, make_launcher: MakeLauncher, handle: Callable[[Launcher, str], str] = lambda launcher, text: ""
) -> int:
    """
    Work until told to stop, or until the parent is gone; the exit code.

    Args:
        make_launcher: Imports the program and gives a launcher that tells the names of its owners to what it is handed.
        handle: Called with what a sidecar tells or asks, one after the other; gives the answer.
    """
    # Out of the terminal's foreground group: Ctrl-C reaches the parent alone, which then asks the children once.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The parent speaks with systemd.
    os.environ.pop("NOTIFY_SOCKET", None)
    launcher = make_launcher(lambda owner: parent.say("OWNER", owner))
    launcher.termination.watch_hard_limits(_Watch(parent))

    relayed = CallbackThread()

    def hear(message: Message) -> None:
        # What a sidecar wants may take its time: a dead sibling's jobs do not wait behind it.
        if message.word == "TELL":
            text = " ".join(message.details)
            relayed.call(lambda: handle(launcher, text))
        elif message.word == "ASK":
            number, text = message.details[0], " ".join(message.details[1:])
            relayed.call(lambda: parent.say("ANSWER", number, handle(launcher, text)))
        elif message.word == "LOAD":
            asks_waiting = "waiting" in message.details
            relayed.call(lambda: parent.say("LOAD", *map(str, launcher.reconfiguration.load(asks_waiting))))
        elif message.word == "DEAD":
            # Said only now: this thread may have waited long for the interpreter, and somebody else is told meanwhile.
            launcher.declare_dead(message.details[0])
            parent.say("HEARD", message.details[0])
        elif message.word == "SIGNAL":
            launcher.termination.send_signal_to_job(int(message.details[0]), launcher.signals.send_to_job)
        elif message.word == "KILLED":
            limit, owner, field = message.details[0], message.details[1], " ".join(message.details[2:])
            answers = {True: "yes", False: "no", None: "later"}
            parent.say(
                "SETTLED",
                answers[launcher.termination.settle_past_time_limit(owner, _bytes_of(field), limit)],
                owner,
                field,
            )

    parent.listen(hear, on_end=lambda: launcher.signals.put("TERM"))
    settle_memory()
    return run_worker(
        launcher,
        on_ready=lambda: parent.say("READY"),
        # Whoever ends without it has crashed: a job may end its process with exit code 0.
        on_stop=lambda name: parent.say("LEAVING", name),
    )


def _bytes_of(field: str) -> bytes:
    return field.encode(errors="surrogateescape")


class _Watch:
    """Tells the parent of jobs with a hard limit."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def begin(self, unit: UnitOfWork, seconds: float) -> None:
        """A job starts."""
        self._say("BEGIN", repr(seconds), unit)

    def terminate(self, unit: UnitOfWork, signal_number: int) -> None:
        """The job that runs is to be ended from outside."""
        self._say("TERMINATE", terminated_by(signal_number), unit)

    def _say(self, word: str, limit: str, unit: UnitOfWork) -> None:
        owner = unit.owner.name if unit.owner is not None else unit.kept_by
        if owner:
            field = in_flight.public_field(unit.field, unit.listed if unit.owner is not None else None)
            self._parent.say(word, limit, owner, field.decode(errors="surrogateescape"))

    def replace(self) -> None:
        """This process takes no more jobs, and another one is to take its place."""
        self._parent.say("RENEW")

    def end(self) -> None:
        """It ended, and is not settled yet."""
        self._parent.say("END")
