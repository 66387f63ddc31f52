"""What `-P` names: how many tasks run at once, and in what."""

import os
from dataclasses import dataclass
from typing import Any, Literal

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("POOL_NAMES", "Slots", "autoscale_range", "cpu_count", "pool_name", "slots")

PoolName = Literal["prefork", "threads", "solo", "asyncio"]

POOL_NAMES = ("prefork", "threads", "solo", "asyncio")
_ALIASES = {"processes": "prefork", "thread": "threads"}
_GREEN = ("gevent", "eventlet")
# What one process of the engine runs of `async def` tasks unless told otherwise.
_COROUTINES = 100


@dataclass(frozen=True, slots=True)
class Slots:
    """
    How many tasks run at once.

    Args:
        processes: Children; 0: the worker's own process works.
        threads: Of each process.
        coroutines: `async def` tasks of each process.
    """

    processes: int
    threads: int
    coroutines: int = _COROUTINES


def pool_name(given: Any) -> PoolName:
    """
    The pool that an option or a setting names.

    Raises:
        ImproperlyConfigured: There is none of that name.
    """
    name = str(given or "prefork").lower()
    name = _ALIASES.get(name, name)
    if name in _GREEN:
        raise ImproperlyConfigured(
            f"there is no pool {name!r}: use -P threads for tasks that wait, or -P asyncio and `async def` tasks"
        )
    if name not in POOL_NAMES:
        raise ImproperlyConfigured(f"there is no pool {given!r}; there are {', '.join(POOL_NAMES)}")
    return name  # type: ignore[return-value]


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def autoscale_range(pool: PoolName, given: Any) -> tuple[int, int] | None:
    """
    The most and the least that `--autoscale` asks for; at least one each, as somebody has to see that tasks wait.

    Args:
        given: Two numbers, or a text with a comma; the second may be missing.

    Returns:
        None where there is none, or the pool cannot.

    Raises:
        ImproperlyConfigured: These are no numbers.
    """
    if not given or pool not in ("prefork", "threads"):
        return None
    parts = given.split(",") if isinstance(given, str) else list(given)
    try:
        most, least = (*(int(part or 0) for part in parts), 0)[:2]
    except (TypeError, ValueError):
        raise ImproperlyConfigured(f"autoscale is {given!r}; it is the most and the least, as in 10,3") from None
    most, least = max(most, least, 1), min(most, least)
    return most, max(least, 1)


def slots(pool: PoolName, concurrency: int) -> Slots:
    """What `-c` means to a pool."""
    if pool == "prefork":
        return Slots(concurrency, 1)
    if pool == "threads":
        return Slots(0, concurrency)
    if pool == "asyncio":
        # Tasks that are no coroutines run beside the loop.
        return Slots(0, cpu_count() + 4, concurrency)
    return Slots(0, 1, 1)
