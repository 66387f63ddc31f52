"""
A companion of the family: a process beside the children that runs no jobs and may speak with the world.

The parent never connects to anything and has one thread; what has to listen somewhere, as remote control does, is its
companion. The parent forks it before the children, replaces it when it dies, relays what it tells and asks them, and
ends it when all of them have ended. Texts pass as they are: what they mean is known at both ends alone. Nothing here
waits for anybody: what a child does not take is kept up to a limit, beyond that the child is left out.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.child_starts import ChildStarts
from sidekiq_py.engine.family import Message, Parent
from sidekiq_py.engine.family_member import Child, send_signal

_log = logging.getLogger("sidekiq")

# What a child or the companion has not taken of what was relayed to it; beyond that it is left out.
_MOST_WAITING_BYTES = 4_000_000
_END_SECONDS = 3.0

PARENT, CHILDREN, ALL = "parent", "children", "all"


@dataclass(frozen=True, slots=True)
class Role:
    """
    What a companion does.

    Args:
        run: Called in the companion; gives its exit code. It has to end when the parent's pipe does.
        obey: Called in the parent with what the companion tells it or asks; gives the answer. It must not wait for
            anything, and never connect to Redis.
    """

    run: Callable[[Parent], int]
    obey: Callable[[str], str]


class Companion:
    """
    The companion as the parent sees it.

    Args:
        role: None: there is none, and nothing here does anything.
        fork: Makes a process that runs what it is given, and stands in no books of the parent.
        children: All that live.
    """

    def __init__(
        self,
        role: Role | None,
        fork: Callable[[Callable[[Parent], int]], Child],
        children: Callable[[], Sequence[Child]],
    ) -> None:
        self._role = role
        self._fork = fork
        self._children = children
        self._starts = ChildStarts(1)
        # None, or the one that lives.
        self.processes: tuple[Child, ...] = ()

    @property
    def next_start_at(self) -> float | None:
        """When one is to be started, on the monotonic clock; None: not now."""
        return self._starts.next_at if self._role is not None and not self.processes else None

    def is_process(self, pid: int) -> bool:
        """It is this one."""
        return any(process.pid == pid for process in self.processes)

    def keep(self) -> None:
        """Start one if there is none, and it is time."""
        if self._role is not None and not self.processes and monotonic() >= self._starts.next_at:
            self.processes = (self._fork(self._role.run),)

    def close_pipes(self) -> None:
        """Close both; in a child, too: these are not for it."""
        for process in self.processes:
            process.up.close()
            process.down.close()

    def note_end(self, code: int) -> None:
        """It has ended, and another one is started soon."""
        (process,) = self.processes
        self.close_pipes()
        self.processes = ()
        now = monotonic()
        self._starts.note_death(was_ready=True, age_seconds=now - process.born_at, now=now)
        _log.warning("the companion process %d ended (%d) and is replaced", process.pid, code)

    def stop(self) -> None:
        """End it: it is asked to, and killed if it does not heed that."""
        for process in self.processes:
            send_signal(process.pid, signal.SIGTERM)
            deadline = monotonic() + _END_SECONDS
            while not _has_ended(process.pid):
                if monotonic() >= deadline:
                    send_signal(process.pid, signal.SIGKILL)
                    deadline = float("inf")
                time.sleep(0.01)
        self.close_pipes()
        self.processes = ()

    # ---- the relay

    def hear(self, message: Message) -> None:
        """What the companion says."""
        if message.word == "TELL":
            who, text = message.details[0], " ".join(message.details[1:])
            self._tell(who, text)
        elif message.word == "ASK":
            number, who, text = message.details[0], message.details[1], " ".join(message.details[2:])
            self._ask(number, who, text)

    def pass_on(self, child: Child, message: Message) -> None:
        """What a child says that is for the companion."""
        pid, rest = str(child.pid), message.details
        if message.word == "ANSWER":
            self._to_companion("ANSWER", rest[0], pid, *rest[1:])
        elif message.word == "SAY":
            self._to_companion("SAID", pid, *rest)

    def note_gone(self, child: Child) -> None:
        """A child has ended, and answers no more."""
        self._to_companion("GONE", str(child.pid))

    def _tell(self, who: str, text: str) -> None:
        if who != CHILDREN:
            self._obey(text)
        if who != PARENT:
            for child in self._children():
                _send(child, "TELL", text)

    def _ask(self, number: str, who: str, text: str) -> None:
        # One that is not ready does not listen yet.
        children = [] if who == PARENT else [child for child in self._children() if child.is_ready]
        asked = [str(child.pid) for child in children if _send(child, "ASK", number, text)]
        if who != CHILDREN:
            asked.append(str(os.getpid()))
        self._to_companion("ASKED", number, *asked)
        if who != CHILDREN:
            self._to_companion("ANSWER", number, str(os.getpid()), self._obey(text))

    def _obey(self, text: str) -> str:
        assert self._role is not None
        try:
            return self._role.obey(text)
        except Exception:  # noqa: BLE001 — the parent goes on, whatever was asked of it
            _log.exception("what the companion process wants of the parent failed")
            return ""

    def _to_companion(self, word: str, *details: str) -> None:
        for process in self.processes:
            _send(process, word, *details)


def _send(process: Child, word: str, *details: str) -> bool:
    if process.down.waiting_bytes > _MOST_WAITING_BYTES:
        return False
    return process.down.write(word, *details)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
