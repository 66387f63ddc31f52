"""
Proxies for objects that are looked up, or created, on use.

`Proxy` looks up its object each time: `current_app` is whichever app is current at that moment. `PromiseProxy` does so
once: a decorated task is created when its app is finalized or when the task is first used. Both pass for the real
object, including with `isinstance`.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ("PromiseProxy", "Proxy", "class_property", "maybe_evaluate", "try_import")

_UNSET = object()


def try_import(module: str, default: Any = None) -> ModuleType | Any:
    """The module named *module*, or *default* if it cannot be imported."""
    try:
        return import_module(module)
    except ImportError:
        return default


class class_property:
    """A property of a class: *getter* and *setter* receive the class, even if it is used on an instance."""

    def __init__(self, getter: Any = None, setter: Any = None) -> None:
        self._getter = getattr(getter, "__func__", getter)
        self._setter = getattr(setter, "__func__", setter)
        self.__doc__ = getter.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._getter(type(instance) if owner is None else owner)

    def __set__(self, instance: Any, value: Any) -> None:
        self._setter(type(instance), value)

    def setter(self, setter: Any) -> "class_property":
        """The same property with *setter*."""
        return type(self)(self._getter, setter)


class _ModuleName(str):
    """`__module__`: a string on the class, as usual; on an instance, that of the real object."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._get_current_object().__module__


class _Doc:
    """`__doc__` of the class and of its instances, each of which may have been given its own."""

    def __init__(self, of_the_class: str | None) -> None:
        self._of_the_class = of_the_class

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._of_the_class
        given = object.__getattribute__(instance, "_doc")
        return instance._get_current_object().__doc__ if given is None else given


def _unless_unbound(operation: Callable[[Any], Any], otherwise: Callable[["Proxy"], Any]) -> Any:
    """A method that applies *operation* to the real object, or *otherwise* to the proxy if there is no real object."""

    def operate(self: "Proxy") -> Any:
        try:
            return operation(self._get_current_object())
        except RuntimeError:
            return otherwise(self)

    return operate


class Proxy:
    """
    Forwards everything to the object that *local* returns.

    Args:
        local: Called to get the real object.
        args, kwargs: Passed to *local*.
        name: The value of `__name__`, returned without looking up the object.
        __doc__: The same for `__doc__`.
    """

    __slots__ = ("_args", "_custom_name", "_doc", "_kwargs", "_local")

    def __init__(
        self,
        local: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        __doc__: str | None = None,
    ) -> None:
        keep = object.__setattr__
        keep(self, "_local", local)
        keep(self, "_args", args or ())
        keep(self, "_kwargs", kwargs or {})
        keep(self, "_custom_name", name)
        keep(self, "_doc", __doc__)

    def _get_current_object(self) -> Any:
        """The real object."""
        find = object.__getattribute__
        return find(self, "_local")(*find(self, "_args"), **find(self, "_kwargs"))

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            custom = object.__getattribute__(self, "_custom_name")
            if custom is not None:
                return custom
        return getattr(self._get_current_object(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._get_current_object(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._get_current_object(), name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._get_current_object().__class__

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        try:
            return self._get_current_object().__dict__
        except RuntimeError:
            raise AttributeError("__dict__") from None

    __repr__ = _unless_unbound(repr, lambda proxy: f"<{type(proxy).__name__} unbound>")
    __bool__ = _unless_unbound(bool, lambda proxy: False)
    __dir__ = _unless_unbound(dir, lambda proxy: [])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_current_object()(*args, **kwargs)

    def __enter__(self) -> Any:
        return self._get_current_object().__enter__()

    def __exit__(self, *exc_info: object) -> Any:
        return self._get_current_object().__exit__(*exc_info)

    def __reduce__(self) -> Any:
        return self._get_current_object().__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._get_current_object().__reduce_ex__(protocol)


def _passing_on(operation: Callable[..., Any]) -> Any:
    def passed_on(self: Proxy, *operands: Any) -> Any:
        return operation(self._get_current_object(), *operands)

    return passed_on


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{
        f"__{name}__": getattr(operator, f"__{name}__")
        for name in (
            *("lt", "le", "eq", "ne", "gt", "ge"),
            *("getitem", "setitem", "delitem", "contains"),
            *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
            *("lshift", "rshift", "and", "xor", "or"),
            *("neg", "pos", "abs", "invert", "index"),
        )
    },
    "__str__": str,
    "__hash__": hash,
    "__iter__": iter,
    "__len__": len,
    "__divmod__": divmod,
    "__complex__": complex,
    "__int__": int,
    "__float__": float,
}


for _name, _operation in _OPERATIONS.items():
    setattr(Proxy, _name, _passing_on(_operation))
Proxy.__doc__ = _Doc(Proxy.__doc__)  # type: ignore[assignment]
Proxy.__module__ = _ModuleName(__name__)


class PromiseProxy(Proxy):
    """A proxy that creates its object on first use and keeps it."""

    __slots__ = ("__weakref__", "_pending", "_recipe", "_thing")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        find, keep = object.__getattribute__, object.__setattr__
        keep(self, "_recipe", (find(self, "_local"), find(self, "_args"), find(self, "_kwargs")))
        for slot in ("_local", "_args", "_kwargs"):
            keep(self, slot, None)
        keep(self, "_thing", _UNSET)
        keep(self, "_pending", [])

    def _get_current_object(self) -> Any:
        thing = object.__getattribute__(self, "_thing")
        return self.__evaluate__() if thing is _UNSET else thing

    def __then__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call *fun* once the object has been created; immediately if it already has been."""
        if self.__evaluated__():
            return fun(*args, **kwargs)
        object.__getattribute__(self, "_pending").append((fun, args, kwargs))
        return None

    def __evaluated__(self) -> bool:
        return object.__getattribute__(self, "_thing") is not _UNSET

    def __maybe_evaluate__(self) -> Any:
        return self._get_current_object()

    def __evaluate__(self) -> Any:
        recipe = object.__getattribute__(self, "_recipe")
        if recipe is None:
            # Another thread was faster.
            return object.__getattribute__(self, "_thing")
        make, args, kwargs = recipe
        thing = make(*args, **kwargs)
        object.__setattr__(self, "_thing", thing)
        # The recipe may be large, and is not needed again.
        object.__setattr__(self, "_recipe", None)
        pending = object.__getattribute__(self, "_pending")
        while pending:
            fun, args, kwargs = pending.pop(0)
            fun(*args, **kwargs)
        return thing


PromiseProxy.__doc__ = _Doc(PromiseProxy.__doc__)  # type: ignore[assignment]
PromiseProxy.__module__ = _ModuleName(__name__)


def maybe_evaluate(obj: Any) -> Any:
    """The object behind a promise, or *obj* itself if it is not a promise."""
    if issubclass(type(obj), PromiseProxy):
        return obj.__maybe_evaluate__()
    try:
        return obj.__maybe_evaluate__()
    except AttributeError:
        return obj
