"""
When the machine stood still, as seen by a process that does nothing but look at the clock.

A worker hands a success in within milliseconds. On a machine that shares its cores with others, all processes may stand
still for seconds: who is killed then had no time for it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_SECONDS = 0.05
LEAST_SECONDS = 0.25

Stall = tuple[float, float]
"""Its begin and its end, in seconds on the system's monotonic clock."""


@contextmanager
def stalls_noted(path: Path) -> Iterator[int]:
    """Meanwhile a process of its own notes them in this file; its id."""
    path.touch()
    watching = subprocess.Popen([sys.executable, "-S", str(Path(__file__)), str(path)])
    try:
        yield watching.pid
    finally:
        watching.kill()
        watching.wait()


def stalls(path: Path) -> list[Stall]:
    """Those that were noted so far."""
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return [(float(begin), float(until)) for begin, until in map(str.split, lines)]


def _watch(path: str) -> None:
    before, parent = time.monotonic(), os.getppid()
    with open(path, "a", buffering=1) as file:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now - before > LEAST_SECONDS:
                file.write(f"{before + LOOK_SECONDS} {now}\n")
            before = now


if __name__ == "__main__":
    _watch(sys.argv[1])
