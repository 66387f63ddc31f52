"""
Ruby values that Python lacks, each as close as possible to a natural Python value.

Those that come from Ruby keep their original text, so that they can be sent back byte for byte.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

Number = int | float

# Source: ActiveSupport 6.1 to 8.1, duration.rb: a year is 365.2425 days, a month a twelfth of that.
_PART_SECONDS: dict[str, int] = {
    "years": 31_556_952,
    "months": 2_629_746,
    "weeks": 604_800,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
}


class Symbol(str):
    """
    A Ruby symbol: `Symbol("low")` is Ruby's `:low`.

    It is a str, equal to the text it holds, so `{Symbol("id"): 1}["id"]` finds its value.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"

    def __str__(self) -> str:
        # Return an exact str, so that text that leaves this library is no longer a Symbol.
        return str.__str__(self)


def symbolize(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the keys to symbols, as most hashes in Ruby code have them: `{"id": 1}` becomes `{id: 1}`."""
    return {Symbol(key): value for key, value in mapping.items()}


class Keywords(dict[str, Any]):
    """
    Keyword arguments of a Ruby method: `perform_later("ExportJob", 1, Keywords(format="csv"))`.

    If they are the last argument of a job that runs here, the Python function is called with them as keywords.
    """

    __slots__ = ()

    def __init__(self, mapping: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        super().__init__(symbolize({**(mapping or {}), **keywords}))

    def __repr__(self) -> str:
        return f"Keywords({', '.join(f'{key}={value!r}' for key, value in self.items())})"


class IndifferentHash(dict[str, Any]):
    """An `ActiveSupport::HashWithIndifferentAccess`, such as Rails' `params`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"IndifferentHash({super().__repr__()})"


@dataclass(frozen=True, slots=True)
class RubyModule:
    """A Ruby class or module, by name: `RubyModule("Billing::Invoice")`. The name is never resolved here."""

    name: str


@dataclass(frozen=True, slots=True)
class Range:
    """
    A Ruby range: `Range(1, 3)` is `1..3`, `Range(1, None, exclude_end=True)` is `1...`.

    Args:
        begin, end: The bounds; None for an open end.
        exclude_end: True if *end* itself is excluded.
    """

    begin: Any
    end: Any
    exclude_end: bool = False

    def __contains__(self, value: Any) -> bool:
        if self.begin is not None and value < self.begin:
            return False
        return self.end is None or value < self.end or (value == self.end and not self.exclude_end)

    def __iter__(self) -> Iterator[int]:
        """Iterate over its integers, like Ruby's `each`. TypeError if *begin* is not an integer or there is no end."""
        return iter(range(self.begin, self.end if self.exclude_end else self.end + 1))


class Duration(timedelta):
    """
    An `ActiveSupport::Duration`: `Duration(months=1, days=2)`.

    It is a timedelta of as many seconds as Rails counts, and keeps its parts, because in Ruby adding `1.month` to a
    date moves it by a calendar month.

    Attributes:
        value: The duration in seconds.
        parts: Maps units to numbers, in order.
    """

    value: Number
    parts: Mapping[str, Number]

    def __new__(cls, **parts: Number) -> "Duration":
        unknown = [unit for unit in parts if unit not in _PART_SECONDS]
        if unknown:
            raise TypeError(f"a Duration has no {unknown[0]!r}; its units are {', '.join(_PART_SECONDS)}")
        value = sum(number * _PART_SECONDS[unit] for unit, number in parts.items())
        kept = {unit: number for unit, number in parts.items() if number or not value}
        return cls.of(value, kept or {"seconds": 0})

    @classmethod
    def of(cls, value: Number, parts: Mapping[str, Number]) -> "Duration":
        """Create a duration that keeps *parts* as given, even if they do not add up to *value*."""
        self = timedelta.__new__(cls, seconds=value)
        self.value = value
        self.parts = dict(parts)
        return self

    def __repr__(self) -> str:
        return f"Duration({', '.join(f'{unit}={number!r}' for unit, number in self.parts.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Duration.of, (self.value, self.parts)
