"""Stacks of which every thread, and every coroutine on an event loop, sees its own."""

from contextvars import ContextVar
from typing import Any, Generic, TypeVar

__all__ = ("LocalStack",)

T = TypeVar("T")


class LocalStack(Generic[T]):
    """
    A stack of its own for each thread and each coroutine.

    Celery's is per thread; `async def` tasks share one thread, so that this is kept per context.
    """

    def __init__(self) -> None:
        self._items: ContextVar[tuple[T, ...]] = ContextVar("sidekiq_celery.stack", default=())

    def push(self, obj: T) -> list[T]:
        """Put *obj* on top."""
        items = (*self._items.get(), obj)
        self._items.set(items)
        return list(items)

    def pop(self) -> T | None:
        """Take the top away; None where there is nothing."""
        items = self._items.get()
        if not items:
            return None
        self._items.set(items[:-1])
        return items[-1]

    @property
    def top(self) -> T | None:
        """What was pushed last, or None."""
        items = self._items.get()
        return items[-1] if items else None

    @property
    def stack(self) -> list[T]:
        """All, the oldest first."""
        return list(self._items.get())

    def __len__(self) -> int:
        return len(self._items.get())

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return type(self), ()
