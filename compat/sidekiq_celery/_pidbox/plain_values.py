"""Converts any value to something JSON can carry."""

from collections.abc import Iterable, Mapping
from typing import Any

from sidekiq_celery.utils.serialization import safe_repr

_DEEPEST = 20


def plain(value: Any, depth: int = 0) -> Any:
    """Return *value* with everything that JSON lacks as text, and everything nested deeper than 20 levels, too."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth >= _DEEPEST:
        return safe_repr(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else safe_repr(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items: Iterable[Any] = value
        return [plain(item, depth + 1) for item in items]
    return safe_repr(value)
