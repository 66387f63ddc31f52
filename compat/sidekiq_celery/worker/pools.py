"""What `-P` chooses: how many tasks run at once, and in processes, threads or coroutines."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from sidekiq_celery.concurrency import PoolName
from sidekiq_celery.exceptions import ImproperlyConfigured

# How many `async def` tasks one process of the engine runs at once by default.
_COROUTINES = 100


class Slots(NamedTuple):
    """
    How many tasks run at once.

    Args:
        processes: The number of children; 0 if the worker's own process runs the tasks.
        threads: Per process.
        coroutines: `async def` tasks per process.
    """

    processes: int
    threads: int
    coroutines: int = _COROUTINES


def cpu_count() -> int:
    """The number of processors that this process may use."""
    # macOS does not tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_budget(of_process: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> int:
    """
    The number of processors that `-c auto` may count on: no more than a container's quota allows, rounded up.

    Args:
        of_process: The file in which Linux names the control groups of this process.
        mounted: Where the control groups are.
    """
    quotas = (_quota(folder) for folder in _control_groups(of_process, mounted))
    return min([cpu_count(), *(max(ceil(quota), 1) for quota in quotas if quota is not None)])


def _control_groups(of_process: Path, mounted: Path) -> Iterator[Path]:
    """The folders that may hold a quota: also those above the process's own; within a container, only they exist."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        lines = []  # not Linux
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if {"", "cpu"} & set(controllers.split(",")):
            group = Path(os.path.normpath(f"/{path.lstrip('/')}"))
            yield from (mounted / controllers / above.relative_to("/") for above in (group, *group.parents))


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:  # version 1 of control groups
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdigit() else None


def autoscale_range(pool: PoolName, given: Any) -> tuple[int, int] | None:
    """
    Return the most and the least that `--autoscale` asks for. Both are at least 1: someone has to notice waiting tasks.

    Args:
        given: Two numbers, or a text with a comma. The second may be missing.

    Returns:
        None if *given* is empty or the pool cannot scale.

    Raises:
        ImproperlyConfigured: *given* holds something other than numbers.
    """
    if not given or pool not in ("prefork", "threads"):
        return None
    parts = given.split(",") if isinstance(given, str) else list(given)
    try:
        most, least = (*(int(part or 0) for part in parts), 0)[:2]
    except (TypeError, ValueError):
        raise ImproperlyConfigured(f"autoscale is {given!r}; give the most and the least, as in 10,3") from None
    most, least = max(most, least, 1), min(most, least)
    return most, max(least, 1)


def slots(pool: PoolName, concurrency: int) -> Slots:
    """Translate `-c` for a pool."""
    if pool == "prefork":
        return Slots(concurrency, 1)
    if pool == "threads":
        return Slots(0, concurrency)
    if pool == "asyncio":
        # Tasks that are not coroutines run in threads beside the loop.
        return Slots(0, cpu_count() + 4, concurrency)
    return Slots(0, 1, 1)
