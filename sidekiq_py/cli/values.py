"""Single values of flags, files and variables, checked; each message names the option and what it may be."""

from collections.abc import Collection
from typing import Any

from sidekiq_py.errors import ConfigError


def whole_number(value: Any, name: str) -> int:
    """0 or more; digits in quotes count, too."""
    number = _integer(value)
    if number is None or number < 0:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number, 0 or more")
    return number


def positive_integer(value: Any, name: str) -> int:
    """1 or more; digits in quotes count, too."""
    number = _integer(value)
    if number is None or number < 1:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    return number


def positive_number(value: Any, name: str) -> float:
    """More than 0, whole or not."""
    try:
        number = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"{name} is {value!r}; it must be a number more than 0")
    return number


def one_of(value: Any, allowed: Collection[str], name: str) -> str | None:
    """One of the names in *allowed*; None stays None."""
    if value is not None and str(value) not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return None if value is None else str(value)


def texts(value: Any, name: str) -> tuple[str, ...]:
    """A list of texts, or a single one; None is an empty list."""
    if value is None:
        return ()
    entries = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(entry, list | tuple | dict) or entry is None for entry in entries):
        raise ConfigError(f"{name} is {value!r}; it must be a list of names")
    return tuple(str(entry) for entry in entries)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        return int(value) if isinstance(value, str) else None
    except ValueError:
        return None
