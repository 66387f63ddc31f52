"""Duck types for tasks and signatures: anything with the right methods passes."""

from abc import ABCMeta, get_cache_token
from functools import lru_cache
from typing import Any, ClassVar

__all__ = ("CallableSignature", "CallableTask")


class _ByMethods(ABCMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(instance.__class__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        # The token changes whenever a class is registered anywhere.
        return _passes(cls, subclass, get_cache_token())


@lru_cache(maxsize=256)
def _passes(cls: Any, subclass: type, _: object) -> bool:
    """True if *subclass* passes for *cls*. Cached, because a large canvas asks this for each of its members."""
    if ABCMeta.__subclasscheck__(cls, subclass):
        return True
    wanted: frozenset[str] = cls.__dict__.get("__required_attributes__", frozenset())
    defined = {name for base in subclass.__mro__ for name in base.__dict__}
    return bool(wanted) and wanted <= defined


class CallableTask(metaclass=_ByMethods):
    """An object that can be delayed."""

    __required_attributes__: ClassVar[frozenset[str]] = frozenset({"delay", "apply_async", "apply", "__call__"})


class CallableSignature(CallableTask):
    """An object that can be delayed, linked and joined."""

    __required_attributes__: ClassVar[frozenset[str]] = frozenset(
        {"delay", "apply_async", "apply", "__call__", "clone", "freeze", "set", "link", "link_error", "__or__"}
    )
