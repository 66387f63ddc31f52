"""Cuts what is too long for one command, script or round trip."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

S = TypeVar("S", bound=Sequence[Any])
T = TypeVar("T")

# A script blocks Redis while it runs, so large payloads are split over several calls.
SLICE_BYTES = 4 * 1024 * 1024


def slices_of(items: S, most: int) -> Iterator[S]:
    """*items*, in order, in slices of at most *most*."""
    return (items[start : start + most] for start in range(0, len(items), most))  # type: ignore[misc]


def lists_of(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """*items*, in order, in lists of at most *most*, each read when it is wanted."""
    left = iter(items)
    while part := list(islice(left, most)):
        yield part


def slices_by_bytes(items: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """*items*, in order, in slices of at most `SLICE_BYTES`; a larger item is alone in its slice."""
    return slices_by_size(items, bytes_of, SLICE_BYTES)


def slices_by_size(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """*items*, in order, in slices with a size of at most *most*; a larger item is alone in its slice."""
    part: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if part and total + size > most:
            yield part
            part, total = [], 0
        part.append(item)
        total += size
    if part:
        yield part
