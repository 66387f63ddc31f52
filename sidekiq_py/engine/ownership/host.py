"""
Where a process lives, and whether it is provably dead.

A lease says that a process was not heard of; this says more, where it can: the same boot of the same machine, the
same PID namespace, and no such process any more. So a worker that is restarted on its machine takes up the jobs of
its killed predecessor at once.

A process can be in a PID namespace of its own and still see the `/proc` of the namespace around it (`unshare --pid
--fork`, containers that mount the host's). There `/proc/7` is another process than the one that has the number 7 here:
only `/proc/self` is right. The start of another process cannot be told then, and a number alone proves death only by
being nobody's.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """
    A process and where it runs; empty text and 0 where the system does not tell.

    Args:
        start: The time at which it was started, in clock ticks since boot: tells it from a later process of that
            number.
    """

    boot: str
    pid_namespace: str
    pid: int
    start: int

    @classmethod
    def here(cls, proc: Path = _PROC) -> "ProcessPlace":
        """This process."""
        stat = _stat_in(proc / "self")
        return cls(_boot_id(), _pid_namespace(), os.getpid(), stat.start if stat is not None else 0)

    def is_provably_dead(self, proc: Path = _PROC) -> bool:
        """True only if it certainly runs no more; False where that cannot be told from here."""
        if not self.is_within_sight():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        stat = _stat_of(self.pid, proc)
        if stat is None or not self.start:
            return False
        return stat.state in "ZX" or stat.start != self.start

    def cpu_ticks(self, proc: Path = _PROC) -> int | None:
        """The CPU time it has used so far; None where that cannot be told from here."""
        stat = _stat_of(self.pid, proc) if self.start and self.is_within_sight() else None
        return stat.cpu_ticks if stat is not None and stat.start == self.start else None

    @property
    def machine(self) -> str:
        """Its boot and PID namespace in a word: those that have it in common see each other. Empty where unknown."""
        if not (self.boot and self.pid_namespace):
            return ""
        return hashlib.sha1(f"{self.boot} {self.pid_namespace}".encode(), usedforsecurity=False).hexdigest()[:16]

    def is_within_sight(self) -> bool:
        """Its number means the same process here."""
        is_this_boot = bool(self.boot) and self.boot == _boot_id()
        return is_this_boot and bool(self.pid_namespace) and self.pid_namespace == _pid_namespace()


@dataclass(frozen=True, slots=True)
class _Stat:
    """What `/proc/<pid>/stat` says; times in clock ticks."""

    state: str
    start: int
    cpu_ticks: int


def registration(place: ProcessPlace, queues: Sequence[str]) -> str:
    """What an owner writes about itself into `sidekiq_py:owners`."""
    facts = {
        "boot": place.boot,
        "pidns": place.pid_namespace,
        "pid": place.pid,
        "start": place.start,
        "queues": list(queues),
    }
    return json.dumps(facts, separators=(",", ":"))


def parse_registration(text: bytes) -> tuple[ProcessPlace, list[str]]:
    """The place and the queues of an owner; what cannot be read counts as unknown."""
    try:
        facts: Any = json.loads(text)
        place = ProcessPlace(str(facts["boot"]), str(facts["pidns"]), int(facts["pid"]), int(facts["start"]))
        return place, [str(name) for name in facts["queues"]]
    except (ValueError, KeyError, TypeError):
        return ProcessPlace("", "", 0, 0), []


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _stat_of(pid: int, proc: Path) -> _Stat | None:
    """Of the process that has this number here; None where *proc* counts otherwise."""
    try:
        is_of_this_namespace = os.readlink(proc / "self") == str(os.getpid())
    except OSError:
        return None
    return _stat_in(proc / str(pid)) if is_of_this_namespace else None


def _stat_in(folder: Path) -> _Stat | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, parentheses too.
    words = text[text.rindex(")") + 2 :].split()
    return _Stat(state=words[0], start=int(words[19]), cpu_ticks=int(words[11]) + int(words[12]))
