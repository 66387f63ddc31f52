"""A property of a class, seen from the class and from its instances."""

from collections.abc import Callable
from typing import Any

__all__ = ("class_property",)


class class_property:
    """
    Like `property`, with class methods for getter and setter.

    Args:
        getter: Called with the class.
        setter: Called with the class and the value, where an instance's attribute is set.
    """

    def __init__(self, getter: Callable[..., Any], setter: Callable[..., Any]) -> None:
        self._getter = getattr(getter, "__func__", getter)
        self._setter = getattr(setter, "__func__", setter)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._getter(owner if owner is not None else type(instance))

    def __set__(self, instance: Any, value: Any) -> None:
        self._setter(type(instance), value)
