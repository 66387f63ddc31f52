"""Times, time zones and intervals."""

import numbers
import random
import time as _time
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

from sidekiq_celery.utils.functional import dictfilter
from sidekiq_celery.utils.local_zone import LocalTimezone, local_zone
from sidekiq_celery.utils.text import pluralize

__all__ = (
    "LocalTimezone",
    "add_seconds_to_datetime",
    "adjust_timestamp",
    "delta_resolution",
    "ffwd",
    "get_exponential_backoff_interval",
    "humanize_seconds",
    "is_naive",
    "localize",
    "make_aware",
    "maybe_iso8601",
    "maybe_make_aware",
    "maybe_timedelta",
    "rate",
    "remaining",
    "subtract_datetimes",
    "timezone",
    "to_utc",
    "utcoffset",
    "weekday",
)

DAYNAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WEEKDAYS = {name: place for place, name in enumerate(DAYNAMES)}
MONTHNAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
YEARMONTHS = {name: place for place, name in enumerate(MONTHNAMES, start=1)}

_RATE_DIVISORS = {"s": (), "m": (60.0,), "h": (60.0, 60.0)}
_UNITS = (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
_DAY = timedelta(days=1)


class _Zone:
    """The time zones that an app may use."""

    def tz_or_local(self, tzinfo: Any = None) -> tzinfo:
        """Return that zone, by default this machine's."""
        return self.local if tzinfo is None else self.get_timezone(tzinfo)

    def to_local(self, dt: datetime, local: Any = None, orig: Any = None) -> datetime:
        """Convert *dt* to *local*, by default this machine's zone. A naive time is in *orig*, by default UTC."""
        aware = make_aware(dt, orig or self.utc) if is_naive(dt) else dt
        return localize(aware, self.tz_or_local(local))

    def to_system(self, dt: datetime) -> datetime:
        """Convert *dt* to the time that this machine's clock shows."""
        return dt.astimezone(tz=None)

    def to_local_fallback(self, dt: datetime) -> datetime:
        """Convert *dt* to this machine's zone. A naive time is taken to be in that zone."""
        return make_aware(dt, self.local) if is_naive(dt) else localize(dt, self.local)

    def get_timezone(self, zone: Any) -> Any:
        """Return the zone of that name. A zone stays as it is."""
        return ZoneInfo(zone) if isinstance(zone, str) else zone

    @cached_property
    def local(self) -> tzinfo:
        """This machine's zone."""
        return local_zone()

    @cached_property
    def utc(self) -> tzinfo:
        """UTC."""
        return ZoneInfo("UTC")


timezone = _Zone()


def maybe_timedelta(delta: Any) -> Any:
    """Convert seconds to a timedelta. Anything else stays as it is."""
    return timedelta(seconds=float(delta)) if isinstance(delta, numbers.Real) else delta


def delta_resolution(dt: datetime, delta: timedelta) -> datetime:
    """Round *dt* down to days, hours or minutes: the largest of these units that fits into *delta*."""
    seconds = max(delta.total_seconds(), 0)
    parts = (dt.year, dt.month, dt.day, dt.hour, dt.minute, dt.second)
    for count, unit in ((3, 86400), (4, 3600), (5, 60)):
        if seconds >= unit:
            year, month, day, hour, minute, second = (*parts[:count], *(0,) * (6 - count))
            # When clocks go back, an hour occurs twice. A time in the second one stays in the second one.
            return datetime(year, month, day, hour, minute, second, tzinfo=dt.tzinfo, fold=dt.fold)
    return dt


def _occurrences(rounded: datetime) -> list[datetime]:
    """The one or two moments, in UTC, at which a clock shows *rounded*. In a gap, as if the clocks had not changed."""
    found = []
    for fold in (0, 1):
        shown = rounded.replace(fold=fold)
        # If the clocks skip this time, take the moment as if they had not been changed.
        found.append((shown.replace(fold=0) if _is_imaginary(shown) else shown).astimezone(UTC))
    return found


def _relative_end(start: datetime, end: datetime, ends_in: Any) -> datetime:
    """The boundary of the unit of *ends_in* (midnight, full hour, full minute) at or before *end*, in UTC."""
    candidates = _occurrences(delta_resolution(end, ends_in).replace(microsecond=0))
    begun = start.astimezone(UTC)
    if ends_in >= _DAY:
        return min((one for one in candidates if one > begun), default=end.astimezone(UTC))
    limit = begun + ends_in
    chosen = max((one for one in candidates if one <= limit), default=min(candidates))
    if ends_in < timedelta(minutes=1) or chosen > begun:
        return chosen
    # If clocks go back by a part of an hour, the boundary may be before the start. Then the next ones count, too.
    unit = timedelta(hours=1) if ends_in >= timedelta(hours=1) else timedelta(minutes=1)
    for later in (end + unit, start + ends_in):
        candidates += _occurrences(delta_resolution(later, ends_in).replace(microsecond=0))
    ahead = [one for one in candidates if one > begun]
    return max((one for one in ahead if one <= limit), default=min(ahead, default=limit))


def remaining(start: datetime, ends_in: Any, now: datetime | None = None, relative: bool = False) -> timedelta:
    """
    Return the time left until *start* plus *ends_in*; negative if that is past.

    Args:
        ends_in: A timedelta or `ffwd`.
        now: The current time; by default the clock's.
        relative: Count up to the boundary of the unit of *ends_in*: days end at midnight.
    """
    if isinstance(ends_in, timedelta) and not (relative and ends_in >= _DAY):
        end = add_seconds_to_datetime(start, ends_in.total_seconds())
    else:
        # Calendar arithmetic, because a day may have 23 hours.
        end = start + ends_in
    if relative:
        end = _relative_end(start, end, ends_in)
    return end.astimezone(UTC) - (now or datetime.now(UTC)).astimezone(UTC)


def rate(r: Any) -> float:
    """Convert `"100/m"`, `"2/h"`, `"0.5/s"` or a number to runs per second; 0 for no rate."""
    if not isinstance(r, str):
        return r or 0
    if not r:
        return 0
    count, _, unit = r.partition("/")
    per_second = float(count)
    for divisor in _RATE_DIVISORS[unit or "s"]:
        per_second /= divisor
    return per_second


def weekday(name: str) -> int:
    """
    Return the number of a weekday, by its first three letters: 0 for Sunday to 6.

    Raises:
        KeyError: There is no such day.
    """
    return _placed(WEEKDAYS, name)


def yearmonth(name: str) -> int:
    """
    Return the number of a month, by its first three letters: 1 for January to 12.

    Raises:
        KeyError: There is no such month.
    """
    return _placed(YEARMONTHS, name)


def _placed(places: dict[str, int], name: str) -> int:
    try:
        return places[name[:3].lower()]
    except KeyError:
        raise KeyError(name) from None


def humanize_seconds(secs: float, prefix: str = "", sep: str = "", now: str = "now", microseconds: bool = False) -> str:
    """
    Format seconds for people: `1.00 minute`.

    Args:
        prefix: Put in front with *sep*, unless the result is *now*.
        microseconds: Show less than a second as a number, not as *now*.
    """
    seconds = round(float(secs), 2)
    for unit, length in _UNITS:
        if seconds >= length:
            count = seconds / length
            return f"{prefix}{sep}{count:.2f} {pluralize(count, unit)}"
    if microseconds and seconds > 0.0:
        return f"{prefix}{sep}{seconds:.2f} seconds"
    return now


def maybe_iso8601(dt: datetime | str | None) -> datetime | None:
    """Parse an ISO 8601 text. A datetime stays as it is; empty values become None."""
    if not dt:
        return None
    return dt if isinstance(dt, datetime) else datetime.fromisoformat(dt)


def is_naive(dt: datetime) -> bool:
    """True if *dt* has no time zone."""
    return dt.tzinfo is None or dt.tzinfo.utcoffset(dt) is None


def add_seconds_to_datetime(dt: datetime, seconds: float) -> datetime:
    """Add *seconds* to *dt* in elapsed time, whatever the clocks do in between."""
    delta = timedelta(seconds=seconds)
    return dt + delta if is_naive(dt) else (dt.astimezone(UTC) + delta).astimezone(dt.tzinfo)


def subtract_datetimes(end: datetime, start: datetime) -> timedelta:
    """Return the time between both. Naive times are in UTC."""
    return maybe_make_aware(end).astimezone(UTC) - maybe_make_aware(start).astimezone(UTC)


def _is_ambiguous(dt: datetime) -> bool:
    first, second = dt.replace(fold=0).utcoffset(), dt.replace(fold=1).utcoffset()
    return first is not None and second is not None and first > second


def _is_imaginary(dt: datetime) -> bool:
    if dt.utcoffset() is None:
        return False
    back = dt.astimezone(UTC).astimezone(dt.tzinfo)
    return back.replace(tzinfo=None, fold=0) != dt.replace(tzinfo=None, fold=0)


def make_aware(dt: datetime, tz: tzinfo) -> datetime:
    """Put *dt* in the zone *tz*: of two moments, take the first; in a gap, move past it by the same amount."""
    aware = dt.replace(tzinfo=tz)
    if not isinstance(tz, ZoneInfo) and not hasattr(tz, "is_ambiguous"):
        return aware
    if _is_imaginary(aware):
        return aware.replace(fold=0).astimezone(UTC).astimezone(tz)
    return aware.replace(fold=0) if _is_ambiguous(aware) else aware


def localize(dt: datetime, tz: tzinfo) -> datetime:
    """Convert a UTC time to *tz*. A naive time is taken to be in *tz*; other times stay as they are."""
    aware = make_aware(dt, tz) if is_naive(dt) else dt
    return aware.astimezone(tz) if aware.tzinfo in (UTC, timezone.utc) else aware


def to_utc(dt: datetime) -> datetime:
    """Attach UTC to *dt* as its zone."""
    return make_aware(dt, timezone.utc)


def maybe_make_aware(dt: datetime, tz: Any = None, naive_as_utc: bool = True) -> datetime:
    """Convert a naive time, taken to be in UTC or in *tz*, to *tz*. A time with a zone stays as it is."""
    if not is_naive(dt):
        return dt
    zone = timezone.utc if tz is None else timezone.tz_or_local(tz)
    return localize(to_utc(dt) if naive_as_utc else dt, zone)


class ffwd:
    """Fields to set in a datetime, and weeks to add after that: `start + ffwd(hour=4)`."""

    def __init__(
        self,
        year: int | None = None,
        month: int | None = None,
        weeks: int = 0,
        weekday: int | None = None,
        day: int | None = None,
        hour: int | None = None,
        minute: int | None = None,
        second: int | None = None,
        microsecond: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.year = year
        self.month = month
        self.weeks = weeks
        self.weekday = weekday
        self.day = day
        self.hour = hour
        self.minute = minute
        self.second = second
        self.microsecond = microsecond
        self.days = weeks * 7

    def _fields(self, **extra: Any) -> dict[str, Any]:
        names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
        return dictfilter({name: getattr(self, name) for name in names}, **extra)

    def __repr__(self) -> str:
        fields = self._fields(weeks=self.weeks, weekday=self.weekday)
        return f"ffwd({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, date):
            return NotImplemented
        year, month = self.year or other.year, self.month or other.month
        day = min(monthrange(year, month)[1], self.day or other.day)
        moved: date = other.replace(**{**self._fields(), "year": year, "month": month, "day": day})
        if self.weekday is not None:
            moved += timedelta(days=(7 - moved.weekday() + self.weekday) % 7)
        return moved + timedelta(days=self.days)


def utcoffset(time: ModuleType | Any = _time, localtime: Callable[..., Any] = _time.localtime) -> float:
    """The number of hours that this machine's clock is behind UTC."""
    seconds: float = time.altzone if localtime().tm_isdst else time.timezone
    return seconds / 3600


def adjust_timestamp(ts: float, offset: float, here: Callable[..., float] = utcoffset) -> float:
    """Convert a timestamp from a machine *offset* hours behind UTC to this machine's."""
    return ts - (offset - here()) * 3600


def get_exponential_backoff_interval(factor: int, retries: int, maximum: int, full_jitter: bool = False) -> int:
    """
    Return the seconds to wait: *factor*, doubled with each retry, up to *maximum*.

    Args:
        full_jitter: Return a random number from 0 to that value.
    """
    countdown: int = min(maximum, factor * (2**retries))
    if full_jitter:
        countdown = random.randrange(countdown + 1)
    return max(0, countdown)
