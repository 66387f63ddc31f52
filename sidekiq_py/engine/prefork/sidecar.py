"""
The sidecar of a prefork pool: a process beside the children that runs no jobs and may open connections.

The parent has one thread and never connects to anything. What has to listen somewhere, such as remote control, runs in
the sidecar. The parent forks it before the children, replaces it when it dies, relays messages between it and the
children, and ends it when all children have ended. Texts are relayed unchanged; only the two ends know their meaning.
Nothing here blocks: messages that a child does not take are buffered up to a limit, and beyond that they are dropped.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.child_starts import ChildStarts
from sidekiq_py.engine.prefork.fleet import Fleet
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.logs import log

# The limit of what is buffered for one child or the sidecar; beyond it, messages are dropped.
_MOST_WAITING_BYTES = 4_000_000
_END_SECONDS = 3.0
# One that ends sooner counts as one that could not start. It does not say when it is ready, and to fail, it may first
# import a large program or wait for a Redis that gives no answer.
_START_SECONDS = 30.0
# The most messages that are kept for the next sidecar.
_MOST_MISSED = 200

PARENT, CHILDREN, ALL = "parent", "children", "all"


@dataclass(frozen=True, slots=True)
class Role:
    """
    The code that makes up a sidecar.

    Args:
        run: Called in the sidecar; returns its exit code. It must return when the parent's pipe ends.
        handle: Called in the parent with each message or question from the sidecar; returns the answer. It must not
            block, and must never connect to Redis.
        name: What the log calls it.
    """

    run: Callable[[Parent], int]
    handle: Callable[[str], str]
    name: str = "sidecar"


class Sidecar:
    """
    The parent's side of the sidecar.

    Args:
        role: What the sidecar does. None means there is no sidecar, and every method does nothing.
        forks: Forks the sidecar's process.
        fleet: The children that the sidecar talks to.

    Attributes:
        process: The sidecar's process; None while there is none.
    """

    def __init__(self, role: Role | None, forks: Forks, fleet: Fleet) -> None:
        self._role = role
        self._forks = forks
        self._fleet = fleet
        self._starts = ChildStarts(1)
        self.process: ChildProcess | None = None
        # What children said while there was none: their last words are their counts of jobs, which nobody else knows.
        self._missed: deque[tuple[str, ...]] = deque(maxlen=_MOST_MISSED)

    @property
    def next_start_at(self) -> float | None:
        """When to start the sidecar, on the monotonic clock; None if it runs or there is none to start."""
        return self._starts.next_at if self._role is not None and self.process is None else None

    def keep(self) -> None:
        """Start the sidecar if it does not run and it is time."""
        if self._role is None or self.process is not None or monotonic() < self._starts.next_at:
            return
        try:
            self.process = self._forks.fork(self._role.run)
        except OSError as error:
            pause = self._starts.note_death(was_ready=False, age_seconds=0.0, now=monotonic())
            name = self._role.name
            log.error("the %s process could not be started (%s); trying again in %.1f s", name, error, pause)
            return
        while self._missed:
            self._to_sidecar(*self._missed.popleft())

    def note_end(self, code: int, *, is_stopping: bool) -> None:
        """The sidecar has ended. Another one is started soon, unless the worker is stopping."""
        process, self.process = self.process, None
        if process is None or self._role is None:
            return
        now = monotonic()
        age = now - process.born_at
        pause = self._starts.note_death(was_ready=age > _START_SECONDS, age_seconds=age, now=now)
        if not is_stopping:
            # systemd, by default, sends TERM to all processes of a worker.
            when = "" if pause is None else f" in {pause:.1f} s"
            log.warning("the %s process %d ended (%d) and is replaced%s", self._role.name, process.pid, code, when)

    def stop(self) -> None:
        """Ask the sidecar to exit, and kill it if it does not. Blocks until it has ended."""
        process, self.process = self.process, None
        if process is None or not self._forks.has(process):
            return
        process.send_signal(signal.SIGTERM)
        deadline = monotonic() + _END_SECONDS
        while self._forks.has(process):
            # This may reap another sidecar, too.
            for _ in self._forks.reap():
                pass
            if monotonic() >= deadline:
                process.send_signal(signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.01)

    # ---- the relay

    def handle_message(self, message: Message) -> None:
        """Handle a message from the sidecar."""
        match message.word, message.details:
            case "TELL", (who, *text):
                self._tell(who, " ".join(text))
            case "ASK", (number, who, *text):
                self._ask(number, who, " ".join(text))
            case _:
                raise ValueError("no such message from a sidecar")

    def pass_answer(self, child: ChildProcess, number: str, text: list[str]) -> None:
        """Relay a child's answer to the sidecar."""
        self._to_sidecar("ANSWER", number, str(child.pid), *text)

    def pass_on(self, child: ChildProcess, text: tuple[str, ...]) -> None:
        """Relay a child's message to the sidecar, or to the next one."""
        self._to_sidecar_or_next("SAID", str(child.pid), *text)

    def note_gone(self, child: ChildProcess) -> None:
        """Report to the sidecar that a child has ended and will not answer any more."""
        self._to_sidecar_or_next("GONE", str(child.pid))

    def _tell(self, who: str, text: str) -> None:
        if who != CHILDREN:
            self._handle(text)
        if who != PARENT:
            for child in self._fleet.children:
                _send(child, "TELL", text)

    def _ask(self, number: str, who: str, text: str) -> None:
        # A child that is not ready does not read messages yet.
        children = [] if who == PARENT else [child for child in self._fleet.children if child.is_ready]
        asked = [str(child.pid) for child in children if _send(child, "ASK", number, text)]
        if who != CHILDREN:
            asked.append(str(os.getpid()))
        self._to_sidecar("ASKED", number, *asked)
        if who != CHILDREN:
            self._to_sidecar("ANSWER", number, str(os.getpid()), self._handle(text))

    def _handle(self, text: str) -> str:
        assert self._role is not None
        try:
            return self._role.handle(text)
        except Exception:  # noqa: BLE001 — no request may stop the parent
            log.exception("a request of the sidecar process failed in the parent")
            return ""

    def _to_sidecar_or_next(self, *message: str) -> None:
        if self.process is None and self._role is not None:
            self._missed.append(message)
        else:
            self._to_sidecar(*message)

    def _to_sidecar(self, word: str, *details: str) -> None:
        if self.process is not None:
            _send(self.process, word, *details)


def _send(process: ChildProcess, word: str, *details: str) -> bool:
    if process.down.waiting_bytes > _MOST_WAITING_BYTES:
        return False
    return process.down.write(word, *details)
