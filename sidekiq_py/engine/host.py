"""
Where a process lives, and whether it is provably dead.

A lease says that a process was not heard of; this says more, where it can: the same boot of the same machine, the
same PID namespace, and no such process any more. So a worker that is restarted on its machine takes up the jobs of
its killed predecessor at once.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    def here(cls) -> "ProcessPlace":
        """This process."""
        pid = os.getpid()
        return cls(_boot_id(), _pid_namespace(), pid, (_stat_of(pid) or ("", 0))[1])

    def is_provably_dead(self) -> bool:
        """True only if it certainly runs no more; False where that cannot be told from here."""
        if not self.boot or self.boot != _boot_id() or not self.pid_namespace or self.pid_namespace != _pid_namespace():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        stat = _stat_of(self.pid)
        if stat is None or not self.start:
            return False
        state, start = stat
        return state in "ZX" or start != self.start


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


def _stat_of(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, parentheses too.
    words = text[text.rindex(")") + 2 :].split()
    return words[0], int(words[19])
