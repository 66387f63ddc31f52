"""
Detects when the machine was stalled, with one process on each core that does nothing but read the clock, and when a
worker waited for a CPU, with one more process that reads the kernel's counters (`/proc/<pid>/task/*/schedstat`).

A worker acknowledges a success within milliseconds. On a machine that shares its cores with others, all processes may
be stalled for seconds: a process that is killed then had no time to acknowledge. Short of that, a process that has used
its share of a busy machine waits longer than one that only reads the clock: an event loop waited for a second beside
clocks that were never late.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_SECONDS = 0.05
LEAST_SECONDS = 0.25
# Reading the counters of three workers with a hundred threads each takes 2 ms.
COUNTER_SECONDS = 0.1
_WAITS = "waits"

Stall = tuple[float, float]
"""The beginning and end of a stall, in seconds on the system's monotonic clock."""


@contextmanager
def stalls_noted(folder: Path) -> Iterator[list[int]]:
    """
    Run a process on each core that notes in this folder when it could not run, and one that notes when descendants of
    this process waited for a CPU. Yields the ids of the former.
    """
    folder.mkdir()
    command = [sys.executable, "-S", str(Path(__file__)), str(os.getpid()), str(folder)]
    watching = [subprocess.Popen([*command, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    counting = subprocess.Popen([*command, _WAITS])
    try:
        yield [one.pid for one in watching]
    finally:
        for one in (*watching, counting):
            one.kill()
            one.wait()


def stalls(folder: Path) -> list[Stall]:
    """The times when none of these processes could run. A single one may just have had to wait for its turn."""
    together: list[Stall] | None = None
    for path in folder.glob("[0-9]*"):
        noted = [(float(begin), float(until)) for begin, until in _noted(path)]
        together = noted if together is None else _both(together, noted)
    return together or []


def waits(folder: Path) -> dict[int, list[Stall]]:
    """The times when a thread of a process waited for a CPU, by process id. They may overlap."""
    found: dict[int, list[Stall]] = {}
    for pid, begin, until in _noted(folder / _WAITS):
        found.setdefault(int(pid), []).append((float(begin), float(until)))
    return found


def seconds_of(stalls: Sequence[Stall], begin: float, until: float) -> float:
    """How much of the time between *begin* and *until* belongs to any of *stalls*."""
    seconds, reached = 0.0, begin
    for start, end in sorted(stalls):
        seconds += max(0.0, min(end, until) - max(start, reached))
        reached = max(reached, end)
    return seconds


def _noted(path: Path) -> list[list[str]]:
    # The last line may be incomplete.
    return [*map(str.split, path.read_text().rpartition("\n")[0].splitlines())] if path.exists() else []


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


def _count(parent: int, folder: str) -> None:
    before: dict[tuple[int, str], int] = {}
    looked_at = time.monotonic()
    with open(Path(folder, _WAITS), "a", buffering=1) as file:
        while os.getppid() == parent:
            time.sleep(COUNTER_SECONDS)
            now, counters = time.monotonic(), {}
            for pid in _descendants(parent):
                waited = {(pid, thread): nanoseconds for thread, nanoseconds in _waited(pid)}
                longest = max([total - before.get(key, 0) for key, total in waited.items()], default=0) / 1e9
                # The kernel adds a wait when it is over, so it may have begun before the last look.
                if longest > (now - looked_at) / 2:
                    file.write(f"{pid} {now - longest} {now}\n")
                counters.update(waited)
            before, looked_at = counters, now


def _waited(pid: int) -> Iterator[tuple[str, int]]:
    """Each thread of a process, and how many nanoseconds it was able to run and waited for a CPU."""
    # Faster than paths, and there are hundreds of threads.
    with suppress(OSError):
        folder = os.open(f"/proc/{pid}/task", os.O_RDONLY)
        try:
            for thread in os.listdir(folder):
                with suppress(OSError), open(os.open(f"{thread}/schedstat", os.O_RDONLY, dir_fd=folder), "rb") as file:
                    yield thread, int(file.read().split()[1])
        finally:
            os.close(folder)


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            yield child
            yield from _descendants(child)


if __name__ == "__main__":
    if sys.argv[3] == _WAITS:
        _count(int(sys.argv[1]), sys.argv[2])
    else:
        _watch(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
