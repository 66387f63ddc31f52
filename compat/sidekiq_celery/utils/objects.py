"""Helpers for objects and classes."""

import functools
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

__all__ = ("Bunch", "FallbackContext", "cached_property", "getitem_property", "mro_lookup")

if TYPE_CHECKING:
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """
        As in `functools`, but threads that ask for the first time at the same moment all get the same object.

        From Python 3.12 on, each would go on with its own, and what it sets there would be lost. Python 3.11 has a lock
        for all instances of a class, which two threads that import and compute could hold up for ever.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            known = instance.__dict__
            found = known.get(self.attrname, self)
            return known.setdefault(self.attrname, self.func(instance)) if found is self else found


class Bunch:
    """An object with arbitrary attributes."""

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)


def mro_lookup(
    cls: type, attr: str, stop: Collection[type] | None = None, monkey_patched: Sequence[str] | None = None
) -> type | None:
    """
    Return the first class among *cls* and its bases that defines *attr*, or None if none before *stop* does.

    Args:
        monkey_patched: The modules that define attributes of the classes in *stop*. If one of these classes has *attr*
            from another module, it counts as defining it.
    """
    for node in cls.mro():
        if node in (stop or ()):
            origin = getattr(node.__dict__.get(attr), "__module__", None)
            return None if origin is None or origin in (monkey_patched or ()) else node
        if attr in node.__dict__:
            return node
    return None


class FallbackContext:
    """A context with *provided*, which stays open, or with a new object from *fallback*, which is closed afterwards."""

    def __init__(self, provided: Any, fallback: Callable[..., Any], *fb_args: Any, **fb_kwargs: Any) -> None:
        self.provided = provided
        self.fallback = fallback
        self.fb_args = fb_args
        self.fb_kwargs = fb_kwargs
        self._context: Any = None

    def __enter__(self) -> Any:
        if self.provided is not None:
            return self.provided
        context = self.fallback(*self.fb_args, **self.fb_kwargs)
        value = context.__enter__()
        self._context = context
        return value

    def __exit__(self, *exc_info: object) -> Any:
        return None if self._context is None else self._context.__exit__(*exc_info)


class getitem_property:
    """An attribute backed by a key of the object, or of a mapping within it (`options.link`)."""

    def __init__(self, keypath: str, doc: str | None = None) -> None:
        path, _, self.key = keypath.rpartition(".")
        self.path = path.split(".") if path else []
        self.__doc__ = doc

    def _home(self, obj: Any) -> Any:
        return reduce(lambda home, key: home[key], self.path, obj)

    def __get__(self, obj: Any, type: Any = None) -> Any:
        if obj is None:
            return type
        return self._home(obj).get(self.key) if self.path else obj.get(self.key)

    def __set__(self, obj: Any, value: Any) -> None:
        self._home(obj)[self.key] = value
