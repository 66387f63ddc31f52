"""This machine's time zone, by name if the name can be found."""

import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_ZONES = "zoneinfo/"


class LocalTimezone(tzinfo):
    """The local zone by the C library's rules, for when its name is unknown."""

    def __repr__(self) -> str:
        hours = int(timedelta(seconds=-(time.altzone if time.daylight else time.timezone)).total_seconds() / 3600)
        return f"<LocalTimezone: UTC{hours:+03d}>"

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """The offset from UTC."""
        return timedelta(seconds=-time.altzone if self._isdst(dt) else -time.timezone)

    def dst(self, dt: datetime | None) -> timedelta:
        """The offset that daylight saving time adds."""
        return timedelta(seconds=time.timezone - time.altzone) if self._isdst(dt) else timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        """The zone's short name at that time."""
        return time.tzname[self._isdst(dt)]

    def fromutc(self, dt: datetime) -> datetime:
        """Convert *dt* from UTC to this zone."""
        moment = dt.replace(tzinfo=UTC)
        local = time.localtime(moment.timestamp())
        return datetime(*local[:6], dt.microsecond, tzinfo=self)

    def _isdst(self, dt: datetime | None) -> bool:
        if dt is None or not time.daylight:
            return False
        stamp = time.mktime((dt.year, dt.month, dt.day, dt.hour, dt.minute, dt.second, dt.weekday(), 0, -1))
        return time.localtime(stamp).tm_isdst > 0


def local_zone() -> tzinfo:
    """
    Return the zone that `TZ` names, or else the one that `/etc/timezone` names or `/etc/localtime` links to. If it has
    no name, as when `TZ` is a rule such as `CET-1CEST,M3.5.0,M10.5.0/3` or a file, the C library's rules apply.
    """
    if wanted := os.environ.get("TZ"):
        return _zone(wanted.removeprefix(":")) or LocalTimezone()
    return _zone(_from_file(Path("/etc/timezone"))) or _zone(_from_link(Path("/etc/localtime"))) or LocalTimezone()


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").split("#")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _from_link(path: Path) -> str:
    resolved = str(path.resolve())
    return resolved.partition(_ZONES)[2] if _ZONES in resolved else ""
