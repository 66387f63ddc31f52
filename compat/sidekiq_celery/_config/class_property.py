"""A property that works on a class and on its instances."""

from collections.abc import Callable
from typing import Any


class class_property:
    """
    Like `property`, but with class methods as getter and setter.

    Args:
        getter: Called with the class.
        setter: Called with the class and the value when the attribute is set on an instance.
    """

    def __init__(self, getter: Callable[..., Any], setter: Callable[..., Any]) -> None:
        self._getter = getattr(getter, "__func__", getter)
        self._setter = getattr(setter, "__func__", setter)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._getter(owner if owner is not None else type(instance))

    def __set__(self, instance: Any, value: Any) -> None:
        self._setter(type(instance), value)
