"""What passes for a task or a signature: anything with the right methods."""

from abc import ABCMeta
from functools import lru_cache
from typing import Any, ClassVar

__all__ = ("CallableSignature", "CallableTask")


class _ByMethods(ABCMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(instance.__class__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if ABCMeta.__subclasscheck__(cls, subclass):
            return True
        wanted: frozenset[str] = cls.__dict__.get("__required_attributes__", frozenset())
        return bool(wanted) and wanted <= _names_of(subclass)


@lru_cache(maxsize=256)
def _names_of(kind: type) -> frozenset[str]:
    """What a class and its bases define; a large canvas asks this of each of its members."""
    return frozenset(name for base in kind.__mro__ for name in base.__dict__)


class CallableTask(metaclass=_ByMethods):
    """Can be delayed."""

    __required_attributes__: ClassVar[frozenset[str]] = frozenset({"delay", "apply_async", "apply", "__call__"})


class CallableSignature(CallableTask):
    """Can be delayed, linked and joined."""

    __required_attributes__: ClassVar[frozenset[str]] = frozenset(
        {"delay", "apply_async", "apply", "__call__", "clone", "freeze", "set", "link", "link_error", "__or__"}
    )
