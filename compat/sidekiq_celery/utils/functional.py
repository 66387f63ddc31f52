"""Helpers for functions and sequences."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice, tee, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from sidekiq_celery.utils.regen import _regen, regen

if TYPE_CHECKING:
    from kombu.utils.functional import memoize

__all__ = (
    "_regen",
    "chunks",
    "dictfilter",
    "first",
    "firstmethod",
    "fun_accepts_kwargs",
    "head_from_fun",
    "is_list",
    "lazy",
    "mattrgetter",
    "maybe",
    "maybe_evaluate",
    "maybe_list",
    "memoize",
    "mlazy",
    "noop",
    "padlist",
    "regen",
    "uniq",
)

T = TypeVar("T")


def __getattr__(name: str) -> Any:
    # kombu takes long to import, and only programs use these here.
    if name in ("LRUCache", "memoize"):
        return getattr(import_module("kombu.utils.functional"), name)
    raise AttributeError(f"module 'sidekiq_celery.utils.functional' has no attribute {name!r}")


class DummyContext:
    """A context manager that does nothing."""

    def __enter__(self) -> "DummyContext":
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


class lazy:
    """A call that is made each time its value is needed."""

    def __init__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._fun, self._args, self._kwargs = fun, args, kwargs

    def __call__(self) -> Any:
        return self.evaluate()

    def evaluate(self) -> Any:
        """Make the call and return its value."""
        return self._fun(*self._args, **self._kwargs)

    def __str__(self) -> str:
        return str(self())

    def __repr__(self) -> str:
        return repr(self())

    def __eq__(self, rhs: object) -> bool:
        return bool(self() == rhs)

    __hash__ = None  # type: ignore[assignment]


class mlazy(lazy):
    """A call that is made once, when its value is first needed."""

    evaluated = False
    _value: Any = None

    def evaluate(self) -> Any:
        """Return the value, making the call if this is the first time."""
        if not self.evaluated:
            self._value = super().evaluate()
            self.evaluated = True
        return self._value


def maybe_evaluate(value: Any) -> Any:
    """Evaluate a lazy value; anything else stays as it is."""
    # kombu has its own `lazy`, and settings may contain it.
    if isinstance(value, lazy) or (type(value).__name__ in ("lazy", "mlazy") and hasattr(value, "evaluate")):
        return value.evaluate()
    return value


def noop(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def pass1(arg: T, *args: Any, **kwargs: Any) -> T:
    """Return the first argument."""
    return arg


def is_list(obj: Any, scalars: tuple[type, ...] = (Mapping, str), iters: tuple[type, ...] = (Iterable,)) -> bool:
    """True if *obj* is iterable, but neither text nor a mapping."""
    return isinstance(obj, iters) and not isinstance(obj, scalars or ())


def maybe_list(obj: Any, scalars: tuple[type, ...] = (Mapping, str)) -> Any:
    """Return *obj* if it is a list or None; otherwise wrap it in a list."""
    return obj if obj is None or is_list(obj, scalars) else [obj]


def dictfilter(d: Mapping[str, Any] | None = None, **kw: Any) -> dict[str, Any]:
    """Return the items that are not None."""
    return {key: value for key, value in {**(d or {}), **kw}.items() if value is not None}


def first(predicate: Callable[[Any], Any] | None, it: Iterable[Any]) -> Any:
    """Return the first element that *predicate* accepts; without a predicate, the first that is not None."""
    accepts = predicate or (lambda value: value is not None)
    return next((value for value in it if accepts(value)), None)


def firstmethod(method: str, on_call: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Make a function that calls *method* on one object after the other, up to the first result that is not None."""

    def ask(it: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        for obj in it:
            found = getattr(maybe_evaluate(obj), method, None)
            if found is None:
                continue
            reply = on_call(found, *args, **kwargs) if on_call else found(*args, **kwargs)
            if reply is not None:
                return reply
        return None

    return ask


def chunks(it: Iterator[T], n: int) -> Iterator[list[T]]:
    """Split an iterator into lists of *n* elements. The last may be shorter."""
    for item in it:
        yield [item, *islice(it, n - 1)]


def padlist(container: Iterable[Any], size: int, default: Any = None) -> list[Any]:
    """Return the first *size* elements, padded with *default*."""
    items = list(container)[:size]
    return items + [default] * (size - len(items))


def mattrgetter(*attrs: str) -> Callable[[Any], dict[str, Any]]:
    """Make a function that returns those attributes of an object, with None for missing ones."""
    return lambda obj: {attr: getattr(obj, attr, None) for attr in attrs}


def uniq(it: Iterable[T]) -> Iterator[T]:
    """Yield each element once, keeping the order. Takes no more from *it* than is asked for."""
    seen: set[T] = set()
    for element in it:
        if element not in seen:
            seen.add(element)
            yield element


def lookahead(it: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Yield each element with the one after it; the last with None."""
    here, ahead = tee(it)
    next(ahead, None)
    return zip_longest(here, ahead)


def maybe(typ: Callable[[Any], T], val: Any) -> T | None:
    """Call *typ* on *val* unless it is None."""
    return None if val is None else typ(val)


def seq_concat_item(seq: Any, item: Any) -> Any:
    """Copy *seq* and append *item*."""
    return (*seq, item) if isinstance(seq, tuple) else [*seq, item]


def seq_concat_seq(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Concatenate both, as the type of the longer one."""
    kind: Any = type(max([a, b], key=len))
    return kind([*a, *b])


def is_numeric_value(value: Any) -> bool:
    """True if *value* is a number. Booleans do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def head_from_fun(fun: Callable[..., Any], bound: bool = False) -> Callable[..., Any]:
    """
    Make a function that takes the arguments of *fun* and does nothing. Calling it checks arguments for the price of a
    call.

    Args:
        bound: The caller of *fun* supplies its first argument.
    """
    target: Any = fun if inspect.isroutine(fun) else type(fun).__call__.__get__(fun)
    spec = inspect.getfullargspec(target)
    # Only the presence of defaults matters. Their values stay with the function.
    optional = len(spec.defaults or ())
    plain = len(spec.args) - optional
    parts = [*spec.args[:plain], *(f"{name}=None" for name in spec.args[plain:])]
    if spec.varargs:
        parts.append(f"*{spec.varargs}")
    elif spec.kwonlyargs:
        parts.append("*")
    parts += [f"{name}=None" if name in (spec.kwonlydefaults or {}) else name for name in spec.kwonlyargs]
    if spec.varkw:
        parts.append(f"**{spec.varkw}")
    name = fun.__name__ if inspect.isroutine(fun) else type(fun).__name__
    known_as = name if name.isidentifier() else "task"
    source = f"def {known_as}({', '.join(parts)}):\n    return 1\n"
    namespace: dict[str, Any] = {"__name__": fun.__module__}
    exec(source, namespace)
    head: Any = namespace[known_as]
    head._source = source
    return partial(head, object()) if bound else head


def arity_greater(fun: Callable[..., Any], n: int) -> Any:
    """True if *fun* takes more than *n* positional arguments."""
    spec = inspect.getfullargspec(fun)
    return spec.varargs or len(spec.args) > n


def fun_takes_argument(name: str, fun: Callable[..., Any], position: int | None = None) -> Any:
    """True if *fun* takes an argument called *name*, or one at *position*."""
    spec = inspect.getfullargspec(fun)
    return spec.varkw or spec.varargs or (len(spec.args) >= position if position else name in spec.args)


def fun_accepts_kwargs(fun: Callable[..., Any]) -> bool:
    """True if *fun* accepts arbitrary keywords."""
    code = getattr(fun, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return any(p.kind == p.VAR_KEYWORD for p in inspect.signature(fun).parameters.values())
