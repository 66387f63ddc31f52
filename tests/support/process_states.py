"""Processes as the kernel shows them in /proc."""

import os
from pathlib import Path


def has_ended(pid: int) -> bool:
    """With all its threads: the first may be a zombie while others, which share its connections, are still there."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    return state_of(pid) in "ZX" and len(threads) <= 1


def state_of(pid: int) -> str:
    """The letter for what a process does; X where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def children_of(pid: int) -> list[int]:
    """The children of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
