"""
The sidecar of a prefork pool: a process beside the children that runs no jobs and may speak with the world.

The parent never connects to anything and has one thread; what has to listen somewhere, as remote control does, is its
sidecar. The parent forks it before the children, replaces it when it dies, relays what it tells and asks them, and
ends it when all of them have ended. Texts pass as they are: what they mean is known at both ends alone. Nothing here
waits for anybody: what a child does not take is kept up to a limit, beyond that the child is left out.
"""

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.child_starts import ChildStarts
from sidekiq_py.engine.prefork.fleet import Children
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.pipes import Message, Parent

_log = logging.getLogger("sidekiq")

# What a child or the sidecar has not taken of what was relayed to it; beyond that it is left out.
_MOST_WAITING_BYTES = 4_000_000
_END_SECONDS = 3.0

PARENT, CHILDREN, ALL = "parent", "children", "all"


@dataclass(frozen=True, slots=True)
class Role:
    """
    What a sidecar does.

    Args:
        run: Called in the sidecar; gives its exit code. It has to end when the parent's pipe does.
        handle: Called in the parent with what the sidecar tells it or asks; gives the answer. It must not wait for
            anything, and never connect to Redis.
    """

    run: Callable[[Parent], int]
    handle: Callable[[str], str]


class Sidecar:
    """
    The sidecar as the parent sees it.

    Args:
        role: None: there is none, and nothing here does anything.
        forks: Where it is made.
        fleet: Whom it speaks with.

    Attributes:
        process: The one that lives; None: there is none now.
    """

    def __init__(self, role: Role | None, forks: Forks, fleet: Children) -> None:
        self._role = role
        self._forks = forks
        self._fleet = fleet
        self._starts = ChildStarts(1)
        self.process: ChildProcess | None = None

    @property
    def next_start_at(self) -> float | None:
        """When one is to be started, on the monotonic clock; None: not now."""
        return self._starts.next_at if self._role is not None and self.process is None else None

    def keep(self) -> None:
        """Start one if there is none, and it is time."""
        if self._role is None or self.process is not None or monotonic() < self._starts.next_at:
            return
        try:
            self.process = self._forks.fork(self._role.run)
        except OSError as error:
            pause = self._starts.note_death(was_ready=False, age_seconds=0.0, now=monotonic())
            _log.error("the sidecar process could not be started (%s); the next try is in %.1f s", error, pause)

    def note_end(self, code: int) -> None:
        """It has ended, and another one is started soon."""
        process, self.process = self.process, None
        if process is None:
            return
        now = monotonic()
        self._starts.note_death(was_ready=True, age_seconds=now - process.born_at, now=now)
        _log.warning("the sidecar process %d ended (%d) and is replaced", process.pid, code)

    def stop(self) -> None:
        """End it: it is asked to, and killed if it does not heed that."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        deadline = monotonic() + _END_SECONDS
        while not any(ended.process is process for ended in self._forks.reap()):
            if monotonic() >= deadline:
                process.send_signal(signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.01)

    # ---- the relay

    def hear(self, message: Message) -> None:
        """What the sidecar says."""
        match message.word, message.details:
            case "TELL", (who, *text):
                self._tell(who, " ".join(text))
            case "ASK", (number, who, *text):
                self._ask(number, who, " ".join(text))
            case _:
                raise ValueError("the sidecar process does not speak so")

    def pass_answer(self, child: ChildProcess, number: str, text: list[str]) -> None:
        """A child answers the sidecar's question."""
        self._to_sidecar("ANSWER", number, str(child.pid), *text)

    def pass_on(self, child: ChildProcess, text: tuple[str, ...]) -> None:
        """A child tells the sidecar something."""
        self._to_sidecar("SAID", str(child.pid), *text)

    def note_gone(self, child: ChildProcess) -> None:
        """A child has ended, and answers no more."""
        self._to_sidecar("GONE", str(child.pid))

    def _tell(self, who: str, text: str) -> None:
        if who != CHILDREN:
            self._handle(text)
        if who != PARENT:
            for child in self._fleet.children:
                _send(child, "TELL", text)

    def _ask(self, number: str, who: str, text: str) -> None:
        # One that is not ready does not listen yet.
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
        except Exception:  # noqa: BLE001 — the parent goes on, whatever was asked of it
            _log.exception("what the sidecar process wants of the parent failed")
            return ""

    def _to_sidecar(self, word: str, *details: str) -> None:
        if self.process is not None:
            _send(self.process, word, *details)


def _send(process: ChildProcess, word: str, *details: str) -> bool:
    if process.down.waiting_bytes > _MOST_WAITING_BYTES:
        return False
    return process.down.write(word, *details)
