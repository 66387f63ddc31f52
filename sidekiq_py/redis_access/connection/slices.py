"""Cuts what is too long for one command, script or round trip."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

S = TypeVar("S", bound=Sequence[Any])


def slices_of(items: S, most: int) -> Iterator[S]:
    """*items*, in order, in slices of at most *most*."""
    return (items[start : start + most] for start in range(0, len(items), most))  # type: ignore[misc]
