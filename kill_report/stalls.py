"""
Detects when the machine was stalled, with one process on each core that does nothing but read the clock.

A worker acknowledges a success within milliseconds. On a machine that shares its cores with others, all processes may
be stalled for seconds: a process that is killed then had no time to acknowledge.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOOK_SECONDS = 0.05
LEAST_SECONDS = 0.25

Stall = tuple[float, float]
"""The beginning and end of a stall, in seconds on the system's monotonic clock."""


@contextmanager
def stalls_noted(folder: Path) -> Iterator[list[int]]:
    """Run a process on each core that notes in this folder when it could not run. Yields the process ids."""
    folder.mkdir()
    command = [sys.executable, "-S", str(Path(__file__)), str(os.getpid()), str(folder)]
    watching = [subprocess.Popen([*command, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield [one.pid for one in watching]
    finally:
        for one in watching:
            one.kill()
            one.wait()


def stalls(folder: Path) -> list[Stall]:
    """The times when none of these processes could run. A single one may just have had to wait for its turn."""
    together: list[Stall] | None = None
    for path in folder.iterdir():
        lines = path.read_text().rpartition("\n")[0].splitlines()
        noted = [(float(begin), float(until)) for begin, until in map(str.split, lines)]
        together = noted if together is None else _both(together, noted)
    return together or []


def _both(these: Sequence[Stall], those: Sequence[Stall]) -> list[Stall]:
    pairs = [(max(a, c), min(b, d)) for a, b in these for c, d in those]
    return [(begin, until) for begin, until in pairs if begin < until]


def _watch(parent: int, folder: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    before = time.monotonic()
    with open(Path(folder, str(core)), "a", buffering=1) as file:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now - before > LEAST_SECONDS:
                file.write(f"{before + LOOK_SECONDS} {now}\n")
            before = now


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
