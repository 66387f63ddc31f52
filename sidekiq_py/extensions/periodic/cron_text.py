"""
Parse cron text as the Ruby gem fugit does: 5 fields, or 6 with seconds in front, and a time zone at the end.

    minute hour day-of-month month day-of-week       */15 8-18 * * mon-fri Europe/Berlin

sidekiq-cron uses fugit, so each oddity here is one of fugit 1.5.2, and `ruby_fixtures/cron_texts.json` holds the
answers of the real one. Where releases differ, 1.5.2 counts, because it comes with the gem that Debian ships.

Source: fugit 1.3.8 and 1.5.2, run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sidekiq_py.errors import ConfigError

SPECIALS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@noon": "0 12 * * *",
    "@hourly": "0 * * * *",
}
UTC_NAME = "Etc/UTC"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_UTC_NAMES = frozenset({"UTC", UTC_NAME, "Zulu", "Etc/Zulu", "Etc/UCT", "UCT", "Universal", "Etc/Universal"})
_OFFSET = re.compile(r"([+-])([01]\d|2[0-4]):?(00|15|30|45)", re.ASCII)
_ZONE_NAME = re.compile(r"[A-Z][a-zA-Z0-9+\-]+(?:/[A-Z][a-zA-Z0-9+\-_]+){0,2}", re.ASCII)
_STARTS_AS_WEEKDAY = re.compile("|".join(_WEEKDAYS), re.IGNORECASE)
# fugit does not accept offsets of twelve hours or more.
_MOST_OFFSET_HOURS = 11
# The longest name of a zone has 32 characters. Each length is looked for in files, which takes seconds for 50,000.
_LONGEST_ZONE = 100


class CronTextError(ConfigError):
    """
    The text is not a valid timetable.

    Attributes:
        position: The position of the part that cannot be read, counted from 1.
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"cron text {text!r}, character {position}: {reason}")
        self.text = text
        self.position = position
        self.reason = reason


class Field(NamedTuple):
    """
    One of the six fields.

    Args:
        value: A pattern for one value.
        last: The highest value, as *first* is the lowest.
    """

    name: str
    value: str
    first: int
    last: int
    names: Sequence[str] = ()


_SECOND = Field("second", r"[0-5]?\d", 0, 59)
_MINUTE = Field("minute", r"[0-5]?\d", 0, 59)
_HOUR = Field("hour", r"2[0-4]|[01]?\d", 0, 23)
_MONTHDAY = Field("day of the month", r"-?(?:3[01]|[12]\d|0?[1-9])|last|l", 1, 31)
_MONTH = Field("month", "|".join(("1[0-2]", "0?[1-9]", *_MONTHS)), 1, 12, ("", *_MONTHS))
_WEEKDAY = Field("day of the week", "|".join(("[0-7]", *_WEEKDAYS)), 0, 7, _WEEKDAYS)

Weekday = tuple[int, int | tuple[int, int] | None]
"""
A day of the week (0 is Sunday), and which of those days count. None: all; a number: the first, second … of the month,
or if negative the last ones; a pair: the weeks since 2019 whose number plus the second element is divisible by the
first.
"""


class CronText(NamedTuple):
    """
    A parsed cron text; None in a field means every value.

    Args:
        text: The fields as written, without the zone.
        zone: The name of the zone, or None if the text has none.
        tz: The zone; UTC if the text has none.
    """

    text: str
    zone: str | None
    tz: tzinfo
    seconds: tuple[int, ...] | None
    minutes: tuple[int, ...] | None
    hours: tuple[int, ...] | None
    monthdays: tuple[int, ...] | None
    months: tuple[int, ...] | None
    weekdays: tuple[Weekday, ...] | None

    def __str__(self) -> str:
        """The text with its zone, as stored: without a zone, each Ruby process would use its own."""
        return f"{self.text} {self.zone or UTC_NAME}"


@lru_cache(maxsize=4096)
def parse(text: str, *, zone: str | None = None) -> CronText:
    """
    Parse a cron text.

    Args:
        zone: The zone of a text without one.

    Raises:
        CronTextError: It cannot be read; the message has the position and the reason.
    """
    written = SPECIALS.get(text, text)
    if re.match(r"[*/\d]", written, re.ASCII) is None:
        written = phrases().get(text, "")
        if not written:
            raise CronTextError(text, 1, _no_fields(text))
    tokens = [(match[0], match.start() + 1) for match in re.finditer(r"[^ \t]+", written)]
    if len(tokens) > 7:
        raise CronTextError(text, tokens[7][1], "nothing may follow the zone")
    if _is_zone(tokens):
        zone, at = tokens.pop()
        tz = zone_at(written, zone, at)
        zone = str(getattr(tz, "key", zone))
    else:
        tz = zone_at(zone, zone, 1) if zone else UTC
    if not 5 <= len(tokens) <= 6:
        raise CronTextError(text, 1, f"{len(tokens)} fields; there must be 5, or 6 with seconds in front")
    seconds = _values(written, _SECOND, *tokens[0]) if len(tokens) == 6 else (0,)
    (minute, hour, monthday, month, weekday) = tokens[-5:]
    hours = _values(written, _HOUR, *hour)
    months, monthdays = _possible_days(
        text, monthday[1], _values(written, _MONTH, *month), _values(written, _MONTHDAY, *monthday)
    )
    return CronText(
        text=" ".join(token for token, _ in tokens),
        zone=zone,
        tz=tz,
        seconds=seconds,
        minutes=_values(written, _MINUTE, *minute),
        hours=None if hours is None else tuple(sorted({hour % 24 for hour in hours})),
        monthdays=monthdays,
        months=months,
        weekdays=_weekdays(written, *weekday),
    )


@cache
def phrases() -> Mapping[str, str]:
    """
    Maps English phrases (`every weekday at noon`) to their cron texts. They were recorded from fugit's two releases,
    which read them alike: `python -m interop_tests.record_cron_texts` runs both and writes `phrases.json`.
    """
    found: dict[str, str] = json.loads((Path(__file__).parent / "phrases.json").read_bytes())
    return found


def check_zone(name: str) -> None:
    """
    Check the name of a time zone that stands alone. In a cron text, fugit shortens a name until it is that of a zone.

    Raises:
        CronTextError: There is no zone with exactly this name.
    """
    zone_at(name, name, 1)
    found = parse(f"* * * * * {name}").zone
    if found != name:
        raise CronTextError(name, 1, f"{name} is not a time zone; did you mean {found}?")


def zone_at(text: str, name: str, position: int) -> tzinfo:
    """
    The time zone with this name or offset (`+02:00`).

    Raises:
        CronTextError: There is no such zone.
    """
    offset = _OFFSET.fullmatch(name)
    if offset:
        hours, minutes = int(offset[2]), int(offset[3])
        if hours > _MOST_OFFSET_HOURS:
            raise CronTextError(text, position, f"{name} is too far from UTC; name a zone, such as Pacific/Auckland")
        return timezone((-1 if offset[1] == "-" else 1) * timedelta(hours=hours, minutes=minutes))
    if name in _UTC_NAMES:
        return UTC
    from zoneinfo import ZoneInfo  # it loads all of sysconfig, which a worker without zones does not need

    # fugit shortens a name until it is a zone: `Europe/Berlin2` is Berlin.
    for end in range(min(len(name), _LONGEST_ZONE), 1, -1):
        try:
            return ZoneInfo(name[:end])
        except (LookupError, ValueError, OSError):
            continue
    raise CronTextError(
        text, position, f"{name} is not a time zone, such as Europe/Berlin; if it should be one, pip install tzdata"
    )


def may_be_read_by_ruby(text: str) -> bool:
    """True for texts rejected here that a release of fugit may read: English phrases, and its newer `&` and `~`."""
    return re.match(r"[*/@\d]", text, re.ASCII) is None or "&" in text or "~" in text


def _no_fields(text: str) -> str:
    if text == "@reboot":
        return "@reboot is not a time that a fleet could share"
    return (
        "it is neither cron (five or six fields, then a zone) nor one of the supported English phrases; "
        "docs/periodic.md shows some"
    )


def _is_zone(tokens: Sequence[tuple[str, int]]) -> bool:
    last = tokens[-1][0]
    if len(tokens) < 6 or (len(tokens) == 6 and _STARTS_AS_WEEKDAY.match(last)):
        return False
    return len(tokens) > 6 or bool(_ZONE_NAME.fullmatch(last) or re.match(r"[+-]\d\d", last, re.ASCII))


def _values(text: str, field: Field, token: str, at: int) -> tuple[int, ...] | None:
    """The sorted values of a field; None for all."""
    values: set[int] = set()
    is_any = False
    for element, position in _elements(token, at):
        start, end, step = _range(text, field, element, position)
        if start is None and end is None and step is None:
            is_any = True
        else:
            values.update(_expanded(text, field, position, start, end, step))
    return None if is_any else tuple(sorted(values))


def _elements(token: str, at: int) -> Iterator[tuple[str, int]]:
    for element in token.split(","):
        yield element, at
        at += len(element) + 1


@lru_cache(maxsize=8)
def _pattern(field: Field) -> re.Pattern[str]:
    value = field.value
    return re.compile(
        rf"(?:\*|(?P<start>{value})(?:-(?P<end>{value}))?)?(?:/(?P<step>\d\d?))?", re.IGNORECASE | re.ASCII
    )


def _range(text: str, field: Field, element: str, position: int) -> tuple[int | None, int | None, int | None]:
    """Start, end and step of one element of a list. A step of one counts as none."""
    match = _pattern(field).fullmatch(element) if element else None
    if match is None:
        raise CronTextError(text, position, _what_is_wrong(field, element))
    step = int(match["step"]) if match["step"] else None
    return _number(field, match["start"]), _number(field, match["end"]), None if step == 1 else step


def _what_is_wrong(field: Field, element: str) -> str:
    if not element:
        return f"a {field.name} is missing beside a comma"
    if "~" in element or "&" in element:
        return f"{element} is syntax of newer releases of fugit, which the older ones do not read"
    named = f", or {next(filter(None, field.names))} to {field.names[-1]}" if field.names else ""
    last = 24 if field is _HOUR else field.last
    return f"{element!r} is not a valid {field.name}; use {field.first} to {last}{named}, a range or a step"


def _number(field: Field, written: str | None) -> int | None:
    if written is None:
        return None
    low = written.lower()
    if low in field.names:
        return field.names.index(low)
    return -1 if low.startswith("l") else int(low)


def _expanded(
    text: str, field: Field, position: int, start: int | None, end: int | None, step: int | None
) -> Sequence[int]:
    """
    The values from *start* to *end*. A range that ends below its start wraps around.

    Source: fugit, `expand` and `range`.
    """
    if step == 0:
        raise CronTextError(text, position, "a step of 0 never gets anywhere; use 1 or more")
    if start is not None and end is None:
        if step is None:
            return (start,)
        end = field.last
    first = field.first if start is None else start
    last = field.last if end is None or (end < 0 < first) else end
    if first < 0 < last:
        raise CronTextError(text, position, "a range that starts before the end of the month must end there, too")
    low, high = (-field.last, -1) if first < 0 else (field.first, field.last)
    values, value = [first], first
    while value != last:
        value += 1
        if value > high:
            value = low
            last = last - high - 1 if last > high else last
        values.append(value)
    return values[:: step or 1]


def _possible_days(
    text: str, position: int, months: tuple[int, ...] | None, monthdays: tuple[int, ...] | None
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Remove months that have none of the days, and days that none of the months has."""
    if months is None or monthdays is None:
        return months, monthdays
    pairs = [(month, day) for month in months for day in monthdays if day <= _DAYS_OF_MONTH[month - 1]]
    if not pairs:
        raise CronTextError(text, position, "none of these months has such a day")
    return tuple(sorted({month for month, _ in pairs})), tuple(sorted({day for _, day in pairs}))


_HASHED = re.compile(rf"({_WEEKDAY.value})#(-?[1-5]|last|l)", re.IGNORECASE | re.ASCII)
_MODULO = re.compile(rf"({_WEEKDAY.value})%(\d{{1,9}})(?:\+(\d{{1,9}}))?", re.IGNORECASE | re.ASCII)


def _weekdays(text: str, token: str, at: int) -> tuple[Weekday, ...] | None:
    """
    The days of the week; None for all.

    Source: fugit, `determine_weekdays`, whose steps differ from those of the other fields: `mon/2` is Monday.
    """
    found: list[Weekday] = []
    for element, position in _elements(token, at):
        hashed, modulo = _HASHED.fullmatch(element), _MODULO.fullmatch(element)
        if hashed:
            found.append((_weekday(hashed[1]), _number(_WEEKDAY, hashed[2])))
        elif modulo:
            if int(modulo[2]) == 0:
                raise CronTextError(text, position, "there is no 0th week; use %1 or more")
            found.append((_weekday(modulo[1]), (int(modulo[2]), int(modulo[3] or 0))))
        else:
            found += [(day % 7, None) for day in _weekday_range(text, element, position)]
    _check_order(text, at, found)
    return tuple(sorted(set(found), key=_order)) or None


def _weekday(written: str) -> int:
    number = _number(_WEEKDAY, written)
    assert number is not None
    return number % 7


def _weekday_range(text: str, element: str, position: int) -> Sequence[int]:
    match = _pattern(_WEEKDAY).fullmatch(element) if element else None
    if match is None:
        raise CronTextError(text, position, _what_is_wrong(_WEEKDAY, element))
    start, end = _number(_WEEKDAY, match["start"]), _number(_WEEKDAY, match["end"])
    if match["step"]:
        last = end if end is not None else 6 if start is None else start
        return range(start or 0, last + 1, int(match["step"]) or 1)
    if start is None:
        return ()
    if end is None:
        return (start,)
    return range(start, (end + 7 if start > end else end) + 1)


def _check_order(text: str, at: int, found: Sequence[Weekday]) -> None:
    for day in {day for day, _ in found}:
        if len({type(which) for other, which in found if other == day and which is not None}) > 1:
            raise CronTextError(text, at, f"{_WEEKDAYS[day]} has both # and %, and fugit cannot order these")


def _order(entry: Weekday) -> tuple[int, bool, Any]:
    """A sort key that puts the plain entry of a day first: fugit only looks at the first."""
    day, which = entry
    return day, which is not None, which
