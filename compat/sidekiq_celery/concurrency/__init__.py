"""
Code that runs in a worker's processes, and the names of the pools. The pools themselves belong to the engine.

A worker has a class for its pool, in the module where Celery has it, because programs ask what they run in: `pool_cls`.
"""

from importlib import import_module
from typing import Any, Literal

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("get_available_pool_names", "get_implementation")

PoolName = Literal["prefork", "threads", "solo", "asyncio"]

_MODULES: dict[str, str] = {"prefork": "prefork", "threads": "thread", "solo": "solo", "asyncio": "asyncio"}
_ALIASES = {"processes": "prefork", "thread": "threads"}
_GREEN = ("gevent", "eventlet")


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
    if name not in _MODULES:
        raise ImproperlyConfigured(f"there is no pool {given!r}; the pools are {', '.join(_MODULES)}")
    return name  # type: ignore[return-value]


def get_implementation(cls: Any) -> Any:
    """
    Return the class of the pool with that name.

    Raises:
        ImproperlyConfigured: There is no such pool.
    """
    return import_module(f"{__name__}.{_MODULES[pool_name(cls)]}").TaskPool


def get_available_pool_names() -> tuple[str, ...]:
    """The names of the pools."""
    return tuple(_MODULES)
