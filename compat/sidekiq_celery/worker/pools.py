"""What `-P` chooses: how many tasks run at once, and in processes, threads or coroutines."""

import os
from typing import Any, Literal, NamedTuple

from sidekiq_celery.exceptions import ImproperlyConfigured

PoolName = Literal["prefork", "threads", "solo", "asyncio"]

POOL_NAMES = ("prefork", "threads", "solo", "asyncio")
_ALIASES = {"processes": "prefork", "thread": "threads"}
_GREEN = ("gevent", "eventlet")
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


class PoolSize:
    """
    The `pool` of a worker and of its consumer, for programs that look at its size.

    Args:
        worker: The worker.
    """

    is_green = False

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    @property
    def num_processes(self) -> int:
        """How many tasks run at once, in whatever the pool consists of."""
        return int(self._worker.concurrency)

    limit = num_processes

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the pool of a worker has no {name!r} here: its processes belong to the engine of sidekiq_py. "
            "app.control.pool_grow, pool_shrink and pool_restart change them",
            name=name,
            obj=self,
        )


def pool_name(given: Any) -> PoolName:
    """
    Return the pool that an option or a setting names.

    Raises:
        ImproperlyConfigured: There is no such pool.
    """
    name = str(given or "prefork").lower()
    name = _ALIASES.get(name, name)
    if name in _GREEN:
        raise ImproperlyConfigured(
            f"there is no pool {name!r}: use -P threads for tasks that wait, or -P asyncio for `async def` tasks"
        )
    if name not in POOL_NAMES:
        raise ImproperlyConfigured(f"there is no pool {given!r}; the pools are {', '.join(POOL_NAMES)}")
    return name  # type: ignore[return-value]


def cpu_count() -> int:
    """The number of processors that this process may use."""
    # macOS does not tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
