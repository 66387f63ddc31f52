"""
Code that runs in a worker's processes, and the names of the pools. The pools themselves belong to the engine.

A worker has a class for its pool, in the module where Celery has it, because programs ask what they run in: `pool_cls`.
"""

import re
from importlib import import_module
from typing import Any, Literal

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("get_available_pool_names", "get_implementation")

PoolName = Literal["prefork", "threads", "solo", "asyncio"]

_MODULES: dict[str, str] = {"prefork": "prefork", "threads": "thread", "solo": "solo", "asyncio": "asyncio"}
_ALIASES = {"processes": "prefork", "thread": "threads"}
_GREEN = ("gevent", "eventlet")
_PATH = re.compile(r"(?:sidekiq_)?celery\.concurrency\.(\w+)[:.]TaskPool")


def pool_name(given: Any) -> PoolName:
    """
    Return the pool that an option or a setting names: by its name, its class, or the path of that class.

    Raises:
        ImproperlyConfigured: There is no such pool.
    """
    asked = f"{given.__module__}:{given.__name__}" if isinstance(given, type) else str(given or "prefork")
    path = _PATH.fullmatch(asked)
    name = path[1] if path else asked.lower()
    name = _ALIASES.get(name, name)
    if name in _GREEN:
        raise ImproperlyConfigured(
            f"there is no pool {name!r}: use -P threads for tasks that wait, or -P asyncio for `async def` tasks"
        )
    if name not in _MODULES:
        raise ImproperlyConfigured(f"there is no pool {asked!r}; the pools are {', '.join(_MODULES)}")
    return name  # type: ignore[return-value]


def get_implementation(cls: Any) -> Any:
    """
    Return the class of a pool; see `pool_name`.

    Raises:
        ImproperlyConfigured: There is no such pool.
    """
    return import_module(f"{__name__}.{_MODULES[pool_name(cls)]}").TaskPool


def get_available_pool_names() -> tuple[str, ...]:
    """The names of the pools."""
    return tuple(_MODULES)
