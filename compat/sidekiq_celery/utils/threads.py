"""Stacks that are local to each thread, and to each coroutine on an event loop."""

from contextvars import ContextVar
from typing import Any, Generic, TypeVar

__all__ = ("LocalStack",)

T = TypeVar("T")


class LocalStack(Generic[T]):
    """
    A stack that is local to each thread and each coroutine.

    Celery's stack is local to threads. `async def` tasks share one thread, so this one is local to contexts.
    """

    def __init__(self) -> None:
        self._items: ContextVar[tuple[T, ...]] = ContextVar("sidekiq_celery.stack", default=())

    def push(self, obj: T) -> list[T]:
        """Push *obj*."""
        items = (*self._items.get(), obj)
        self._items.set(items)
        return list(items)

    def pop(self) -> T | None:
        """Remove and return the top element. Returns None if the stack is empty."""
        items = self._items.get()
        if not items:
            return None
        self._items.set(items[:-1])
        return items[-1]

    @property
    def top(self) -> T | None:
        """The element that was pushed last, or None."""
        items = self._items.get()
        return items[-1] if items else None

    @property
    def stack(self) -> list[T]:
        """All elements, the oldest first."""
        return list(self._items.get())

    def __len__(self) -> int:
        return len(self._items.get())

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return type(self), ()
