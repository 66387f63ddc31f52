"""Crontab's notation: `*/15`, `1-5`, `mon,wed`, `8-18/2`."""

import re
from collections.abc import Iterable
from typing import ClassVar

from sidekiq_celery.utils.time import weekday, yearmonth

Cronspec = int | str | Iterable[int]

_PART = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?P<steps>/(?P<step>\w+)?)?")


class ParseException(Exception):
    """A crontab field cannot be parsed."""


class crontab_parser:
    """
    Parses one field: numbers or names, `*`, ranges (which may wrap around), each with `/step`, separated by commas.

    Args:
        max_: The number of possible values.
        min_: The smallest value.
    """

    ParseException: ClassVar[type[Exception]] = ParseException

    def __init__(self, max_: int = 60, min_: int = 0) -> None:
        self.max_ = max_
        self.min_ = min_

    def parse(self, spec: str) -> set[int]:
        """
        The values that *spec* stands for.

        Raises:
            ParseException: It is empty, or has an empty part, an empty step or a negative number.
            ValueError: A number is out of range, or a name is not that of a day or a month.
        """
        values: set[int] = set()
        for part in spec.split(","):
            if not part:
                raise self.ParseException("empty part")
            values.update(self._part(part))
        return values

    def _part(self, part: str) -> list[int]:
        found = _PART.match(part)
        # A star must be the whole part. Anything after a range or a step is ignored, as in Celery.
        if found is None or (found["star"] and not found["steps"] and found.end() < len(part)):
            return [self._number(part)]
        if not found["star"] and not found["last"]:
            return [self._number(part)]
        values = self._all() if found["star"] else self._range(found["first"], found["last"])
        if found["steps"] and not found["step"]:
            raise self.ParseException("empty filter")
        return values[:: int(found["step"])] if found["steps"] else values

    def _all(self) -> list[int]:
        return list(range(self.min_, self.min_ + self.max_))

    def _range(self, first: str, last: str) -> list[int]:
        start, end = self._number(first), self._number(last)
        if end >= start:
            return list(range(start, end + 1))
        return [*range(start, self.min_ + self.max_), *range(self.min_, end + 1)]

    def _number(self, text: str) -> int:
        if text.startswith("-"):
            raise self.ParseException("negative numbers not supported")
        number = _value(text)
        highest = self.min_ + self.max_ - 1
        if number > highest:
            raise ValueError(f"Invalid end range: {number} > {highest}.")
        if number < self.min_:
            raise ValueError(f"Invalid beginning range: {number} < {self.min_}.")
        return number


def _value(text: str) -> int:
    """A number, or the number of a month or day name; months come first."""
    for read in (int, yearmonth, weekday):
        try:
            return read(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"Invalid weekday literal {text!r}.")


def expand(spec: Cronspec, count: int, least: int = 0) -> set[int]:
    """
    The values of a field, given as a number, a string in crontab notation, or a set or list of numbers.

    Raises:
        ParseException, ValueError: As `crontab_parser.parse` does.
        TypeError: *spec* has another type.
    """
    if isinstance(spec, int):
        values = {spec}
    elif isinstance(spec, str):
        values = crontab_parser(count, least).parse(spec)
    elif isinstance(spec, set):
        values = spec
    elif isinstance(spec, Iterable):
        values = set(spec)
    else:
        raise TypeError(
            f"Argument cronspec needs to be of any of the following types: int, str, or an iterable type. "
            f"{type(spec)!r} was given."
        )
    highest = least + count - 1
    for value in values:
        if not least <= value <= highest:
            raise ValueError(f"Invalid crontab pattern.  Valid range is {least}-{highest}. '{value}' was found.")
    return values
