"""Convert times and dates between Ruby's ISO 8601 text and Python's values."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal

TimeKind = Literal["Time", "DateTime", "TimeWithZone"]

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)",
    re.ASCII | re.IGNORECASE,
)


class RubyTime(datetime):
    """
    A time from Ruby: an aware datetime that remembers its class and its nanoseconds.

    Values derived from it (`+`, `replace`, `astimezone`) are new times with microseconds only.

    Attributes:
        kind: "Time", "DateTime" or "TimeWithZone"; None for a derived time.
        time_zone: The name of a TimeWithZone's zone, if Rails (7.0.9, 7.1.3) sent it.
        text: The text it was read from; None for one created here.
    """

    kind: TimeKind | None = None
    time_zone: str | None = None
    text: str | None = None

    @classmethod
    def of(
        cls, moment: datetime, kind: TimeKind, *, text: str | None = None, time_zone: str | None = None
    ) -> "RubyTime":
        """
        Convert *moment* to a time of that Ruby class.

        Raises:
            ValueError: *moment* is naive.
        """
        if moment.utcoffset() is None:
            raise ValueError(f"{moment!r} has no zone; make it aware, as datetime.now(timezone.utc) is")
        self = cls.combine(moment.date(), moment.timetz())
        self.kind, self.text, self.time_zone = kind, text, time_zone
        return self

    @property
    def nanosecond(self) -> int:
        """Nanoseconds within the second."""
        match = _ISO.fullmatch(self.text) if self.text else None
        return int(match[7][:9].ljust(9, "0")) if match and match[7] else self.microsecond * 1000

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        plain = datetime.combine(self.date(), self.timetz())
        return _restore, (plain, self.kind, self.text, self.time_zone)


def parse_time(text: str, kind: TimeKind, time_zone: str | None = None) -> RubyTime:
    """
    Parse a time that Active Job wrote.

    Args:
        time_zone: The zone to convert it to. If this machine does not know the zone, the offset in the text is kept.

    Raises:
        ValueError: It is not an ISO 8601 time with a zone, or not in the years 1 to 9999.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an ISO 8601 time in the years 1 to 9999")
    year, month, day, hour, minute, second = (int(number) for number in match.groups()[:6])
    microsecond = int((match[7] or "0")[:6].ljust(6, "0"))
    moment = datetime(year, month, day, hour, minute, second, microsecond, _offset(match[8]))
    zone = _zone(time_zone) if time_zone else None
    return RubyTime.of(moment.astimezone(zone) if zone else moment, kind, text=text, time_zone=time_zone)


def time_text(moment: datetime, digits: int) -> str:
    """
    Ruby's `iso8601(digits)` for an aware datetime.

    UTC is `Z`, except in a DateTime. If the zone's offset has seconds (local mean time), the time is written in UTC,
    because Ruby would drop the seconds and so name another moment.
    """
    offset = moment.utcoffset() or timedelta(0)
    if offset % timedelta(minutes=1):
        moment = moment.astimezone(UTC)
    text = f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}"
    if digits:
        text += f".{moment.microsecond:06}".ljust(digits + 1, "0")
    is_utc = moment.tzname() in ("UTC", "UCT") and getattr(moment, "kind", "Time") != "DateTime"
    return text + ("Z" if is_utc else _offset_text(moment))


def parse_date(text: str) -> date:
    """
    Parse a date that Active Job wrote.

    Raises:
        ValueError: It is not an ISO 8601 date in the years 1 to 9999.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an ISO 8601 date in the years 1 to 9999") from None


def _restore(moment: datetime, kind: TimeKind | None, text: str | None, time_zone: str | None) -> RubyTime:
    time = RubyTime.of(moment, kind or "Time", text=text, time_zone=time_zone)
    time.kind = kind
    return time


def _offset(text: str) -> tzinfo:
    if text in ("Z", "z"):
        return UTC
    seconds = int(text[1:3]) * 3600 + int(text[-2:]) * 60
    # An explicit name keeps "+00:00" distinct from UTC itself.
    return timezone(timedelta(seconds=-seconds if text[0] == "-" else seconds), f"{text[:3]}:{text[-2:]}")


def _offset_text(moment: datetime) -> str:
    text = f"{moment:%z}"
    return f"{text[:3]}:{text[3:5]}"


def _zone(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # only Rails 7.0.9 and later name zones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
