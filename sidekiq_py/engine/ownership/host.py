"""
Where a process runs, and whether it is provably dead.

A lapsed lease only says that a process has not been heard from. This module can say more: the process belongs to the
same boot of this machine and to the same PID namespace, and no longer exists. So a worker that is restarted on its
machine recovers the jobs of its killed predecessor at once.

A process can have a PID namespace of its own and still see the `/proc` of the surrounding namespace (`unshare --pid
--fork`, or containers that mount the host's). Its `/proc/7` is then not the process with PID 7 in its own namespace;
only `/proc/self` is right. In that case the start time of another process is unknown, and a PID proves death only if no
process has it.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """
    A process and where it runs. Facts that the system does not reveal are empty strings or 0.

    Args:
        start: When the process started, in clock ticks since boot. It distinguishes the process from a later one with
            the same PID.
    """

    boot: str
    pid_namespace: str
    pid: int
    start: int

    @classmethod
    def here(cls, proc: Path = _PROC) -> "ProcessPlace":
        """Return the place of this process."""
        stat = _own_stat(proc)
        return cls(_boot_id(), _pid_namespace(), os.getpid(), stat.start if stat is not None else 0)

    def is_provably_dead(self, proc: Path = _PROC) -> bool:
        """Returns True only if the process is certainly gone, and False if that cannot be determined from here."""
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
        """Return the CPU time that the process has used so far, or None if that cannot be determined from here."""
        stat = _stat_of(self.pid, proc) if self.start and self.is_within_sight() else None
        return stat.cpu_ticks if stat is not None and stat.start == self.start else None

    @property
    def machine(self) -> str:
        """
        A digest of the boot and the PID namespace, the same for processes that can see each other. Empty if unknown.
        """
        if not (self.boot and self.pid_namespace):
            return ""
        return hashlib.sha1(f"{self.boot} {self.pid_namespace}".encode(), usedforsecurity=False).hexdigest()[:16]

    def is_within_sight(self) -> bool:
        """Returns True if its PID refers to the same process here."""
        is_this_boot = bool(self.boot) and self.boot == _boot_id()
        return is_this_boot and bool(self.pid_namespace) and self.pid_namespace == _pid_namespace()


class _Stat(NamedTuple):
    """The contents of `/proc/<pid>/stat`; times are in clock ticks."""

    state: str
    start: int
    cpu_ticks: int


def registration(place: ProcessPlace, queues: Sequence[str]) -> str:
    """Return the text that an owner writes about itself into `sidekiq_py:owners`."""
    facts = {
        "boot": place.boot,
        "pidns": place.pid_namespace,
        "pid": place.pid,
        "start": place.start,
        "queues": list(queues),
    }
    return json.dumps(facts, separators=(",", ":"))


def parse_registration(text: bytes) -> tuple[ProcessPlace, list[str]]:
    """Return the place and the queues of an owner. An unreadable text yields an unknown place and no queues."""
    try:
        facts: Any = json.loads(text)
        place = ProcessPlace(str(facts["boot"]), str(facts["pidns"]), int(facts["pid"]), int(facts["start"]))
        return place, [name for name in map(str, facts["queues"]) if _is_sendable(name)]
    # Any JSON may be there: 1E400 for a PID, or a thousand brackets.
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return ProcessPlace("", "", 0, 0), []


def _is_sendable(name: str) -> bool:
    """False for a name that is not UTF-8, which no worker of ours serves."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boot_id() -> str:
    try:
        return _read_boot_id()
    except OSError:
        # Perhaps this process can open no more files now, so the next call tries again.
        return ""


@cache
def _read_boot_id() -> str:
    # Read once: a look at the owners of 3,000 processes asks for it with each, which took 0.2 s of CPU.
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _own_stat(proc: Path) -> _Stat | None:
    """
    The stat of this process, read as its first thread's: qemu, which runs containers for another processor, makes up
    `/proc/self/stat`, with another start time than other processes see. They would count this one as dead.
    """
    try:
        number = os.readlink(proc / "self")
    except OSError:
        return None
    return _stat_in(proc / "self" / "task" / number)


def _stat_of(pid: int, proc: Path) -> _Stat | None:
    """Return the stat of the process with this PID, or None if *proc* shows another PID namespace than ours."""
    try:
        is_of_this_namespace = os.readlink(proc / "self") == str(os.getpid())
    except OSError:
        return None
    return _stat_in(proc / str(pid)) if is_of_this_namespace else None


def _stat_in(folder: Path) -> _Stat | None:
    try:
        text = (folder / "stat").read_bytes()
    except OSError:
        return None
    # The process name is in parentheses and may contain any bytes, including parentheses.
    words = text[text.rindex(b")") + 2 :].split()
    return _Stat(state=words[0].decode(), start=int(words[19]), cpu_ticks=int(words[11]) + int(words[12]))
