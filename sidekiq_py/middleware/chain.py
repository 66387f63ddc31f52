"""
Middleware chains around a push (client) and around a run (server).

A middleware is a callable:

    def log_pushes(job, payload, queue, call_next):
        print(payload["jid"])
        return call_next()

*job* is the declared job, or the class name of a job that is not declared here. *payload* is the actual dict, and a
middleware may change it. A client middleware that does not return what `call_next()` returned stops the push. It runs
again when the poller, a retry from the Web UI or an interrupted job pushes the payload again, so it must be idempotent.
Source: Sidekiq 8.1.7, middleware/chain.rb.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from sidekiq_py.errors import ConfigError


class ClientMiddleware(Protocol):
    """Wraps a push. Returns the payload to let it happen, or a falsy value to stop it."""

    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any], /) -> Any: ...


class ServerMiddleware(Protocol):
    """Wraps a run. For `async def` jobs, use an `async def` with the same arguments that awaits `call_next()`."""

    def __call__(
        self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any], /
    ) -> Any | Awaitable[Any]: ...


M = TypeVar("M", bound=Callable[..., Any])
C = TypeVar("C")


class _Entry(NamedTuple):
    middleware: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def make(self) -> Callable[..., Any]:
        """The callable to use for one job. A class is instantiated for each job, as in Ruby."""
        if isinstance(self.middleware, type):
            return self.middleware(*self.arguments, **dict(self.options))  # type: ignore[no-any-return]
        return self.middleware


class Chain(Generic[M]):
    """An ordered list of middleware, outermost first."""

    def __init__(self) -> None:
        self._entries: tuple[_Entry, ...] = ()
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return f"<Chain {[getattr(m, '__name__', m) for m in self]}>"

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter([entry.middleware for entry in self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, middleware: object) -> bool:
        return any(entry.middleware is middleware for entry in self._entries)

    @overload
    def add(self, middleware: type[C], *arguments: Any, **options: Any) -> type[C]: ...
    @overload
    def add(self, middleware: M, *arguments: Any, **options: Any) -> M: ...
    def add(self, middleware: Any, *arguments: Any, **options: Any) -> Any:
        """
        Append *middleware*, which becomes the innermost one. If it is in the chain already, it moves.

        A class is instantiated for each job, with *arguments* and *options*.

        Returns:
            The middleware, so that the method can be used as a decorator.
        """
        entry = self._entry(middleware, arguments, options)
        with self._changing:
            self._entries = (*self._without(middleware), entry)
        return middleware

    @overload
    def prepend(self, middleware: type[C], *arguments: Any, **options: Any) -> type[C]: ...
    @overload
    def prepend(self, middleware: M, *arguments: Any, **options: Any) -> M: ...
    def prepend(self, middleware: Any, *arguments: Any, **options: Any) -> Any:
        """Put *middleware* first, so that it becomes the outermost one. If it is in the chain already, it moves."""
        entry = self._entry(middleware, arguments, options)
        with self._changing:
            self._entries = (entry, *self._without(middleware))
        return middleware

    @overload
    def insert_before(
        self, existing: Callable[..., Any], middleware: type[C], *arguments: Any, **options: Any
    ) -> type[C]: ...
    @overload
    def insert_before(self, existing: Callable[..., Any], middleware: M, *arguments: Any, **options: Any) -> M: ...
    def insert_before(self, existing: Callable[..., Any], middleware: Any, *arguments: Any, **options: Any) -> Any:
        """
        Put *middleware* right outside *existing*, or first if *existing* is not in the chain.

        If *middleware* is in the chain already, it moves, with the arguments and options that it has there.
        """
        return self._insert(existing, 0, middleware, arguments, options)

    @overload
    def insert_after(
        self, existing: Callable[..., Any], middleware: type[C], *arguments: Any, **options: Any
    ) -> type[C]: ...
    @overload
    def insert_after(self, existing: Callable[..., Any], middleware: M, *arguments: Any, **options: Any) -> M: ...
    def insert_after(self, existing: Callable[..., Any], middleware: Any, *arguments: Any, **options: Any) -> Any:
        """
        Put *middleware* right inside *existing*, or last if *existing* is not in the chain.

        If *middleware* is in the chain already, it moves, with the arguments and options that it has there.
        """
        return self._insert(existing, 1, middleware, arguments, options)

    def remove(self, middleware: Callable[..., Any]) -> None:
        """Remove *middleware*. Does nothing if it is not in the chain."""
        with self._changing:
            self._entries = self._without(middleware)

    def clear(self) -> None:
        """Remove all middleware."""
        self._entries = ()

    def make(self) -> list[Callable[..., Any]]:
        """The callables for one job, outermost first. Classes are instantiated."""
        return [entry.make() for entry in self._entries]

    def copy(self) -> "Chain[M]":
        """A chain with the same entries that can be changed independently."""
        twin: Chain[M] = Chain()
        twin._entries = self._entries
        return twin

    def invoke(self, job: Any, payload: dict[str, Any], queue: str, innermost: Callable[[], Any]) -> Any:
        """Call the chain around *innermost*, and return what the outermost middleware returns."""
        return _invoke(self._entries, 0, job, payload, queue, innermost)

    def _entry(self, middleware: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> _Entry:
        if not callable(middleware):
            raise ConfigError(f"{middleware!r} is not a middleware: give a callable (job, payload, queue, call_next)")
        # Of a class or an object, `__call__` is the function.
        given: Any = middleware
        if any(isgeneratorfunction(one) or isasyncgenfunction(one) for one in (given, given.__call__)):
            raise ConfigError(f"{middleware!r} has a yield, so none of it would run; use call_next() instead")
        return _Entry(middleware, arguments, tuple(options.items()))

    def _without(self, middleware: Callable[..., Any]) -> tuple[_Entry, ...]:
        return tuple(entry for entry in self._entries if entry.middleware is not middleware)

    def _insert(
        self,
        existing: Callable[..., Any],
        offset: int,
        middleware: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        with self._changing:
            there = next((entry for entry in self._entries if entry.middleware is middleware), None)
            entries = list(self._without(middleware))
            found = [i for i, entry in enumerate(entries) if entry.middleware is existing]
            place = found[0] + offset if found else offset * len(entries)
            entries.insert(place, there or self._entry(middleware, arguments, options))
            self._entries = tuple(entries)
        return middleware


def _invoke(
    entries: tuple[_Entry, ...],
    index: int,
    job: Any,
    payload: dict[str, Any],
    queue: str,
    innermost: Callable[[], Any],
) -> Any:
    if index == len(entries):
        return innermost()
    return entries[index].make()(
        job, payload, queue, lambda: _invoke(entries, index + 1, job, payload, queue, innermost)
    )
