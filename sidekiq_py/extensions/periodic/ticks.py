"""
When a timetable is due: the instants that match it, as fugit's `previous_time` finds them.

Everything here walks along real seconds and looks at what the clocks of the zone show there. So a time that the clocks
skip is no tick, one that they show twice is two, and where a day is not 24 hours long there are oddities, all of them
fugit's: going back from the day on which the clocks went forward, it overlooks the last hour of the day before.

Source: fugit 1.5.2, cron.rb, `previous_time`, `day_match?` and `TimeCursor`; et-orbi 1.2.2, `wday_in_month`, `rweek`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sidekiq_py.extensions.periodic.cron_text import CronText

# As fugit, which takes a timetable for one that is never due after so many steps.
_MOST_STEPS = 2048
_HOUR = 3600
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY


def previous_time(cron: CronText, now: float) -> int | None:
    """
    The last tick before *now*, in seconds since the epoch.

    A tick counts as passed once a whole second has gone by, as there.

    Returns:
        None where there is none for years.
    """
    at = int(now - 1)
    for _ in range(_MOST_STEPS):
        local = _local(cron, at)
        since_midnight = local.hour * _HOUR + local.minute * 60 + local.second
        if not _is_month(cron, local):
            at -= (local.day - 1) * _DAY + since_midnight + 1
        elif not _is_day(cron, at, local):
            at -= since_midnight + 1
        elif not _is_hour(cron, local):
            at -= local.minute * 60 + local.second + 1
        elif not _is_minute(cron, local):
            at -= local.second + 1
        elif cron.seconds is not None and local.second not in cron.seconds:
            earlier = [second for second in cron.seconds if second < local.second]
            at -= local.second - earlier[-1] if earlier else local.second + 60 - cron.seconds[-1]
        else:
            return at
    return None


def next_time(cron: CronText, now: float) -> int | None:
    """
    The first tick after *now*, in seconds since the epoch.

    fugit's own `next_time` passes over a time that the clocks show a second time, and over days without midnight. The
    gem asks for `previous_time` alone, which does not, and neither does this.

    Returns:
        None where there is none for years.
    """
    at = int(now // 1) + 1
    for _ in range(_MOST_STEPS):
        local = _local(cron, at)
        if not _is_month(cron, local):
            at = max(at + 1, _first_of_next_month(cron, local))
        elif not _is_day(cron, at, local):
            at = max(at + 1, _midnight(cron, local.replace(tzinfo=None) + timedelta(days=1)))
        elif not _is_hour(cron, local):
            at += _HOUR - local.minute * 60 - local.second
        elif not _is_minute(cron, local):
            at += 60 - local.second
        elif cron.seconds is not None and local.second not in cron.seconds:
            later = [second for second in cron.seconds if second > local.second]
            at += later[0] - local.second if later else 60 - local.second + cron.seconds[0]
        else:
            return at
    return None


def upcoming(cron: CronText, now: float) -> Iterator[int]:
    """The ticks after *now*, one after the other."""
    at = next_time(cron, now)
    while at is not None:
        yield at
        at = next_time(cron, at)


def is_repeated(cron: CronText, tick: int) -> bool:
    """Whether the clocks show the time of a tick for the second time."""
    return bool(_local(cron, tick).fold)


def _local(cron: CronText, at: int) -> datetime:
    return datetime.fromtimestamp(at, cron.tz)


def _is_month(cron: CronText, local: datetime) -> bool:
    return cron.months is None or local.month in cron.months


def _is_hour(cron: CronText, local: datetime) -> bool:
    return cron.hours is None or local.hour in cron.hours


def _is_minute(cron: CronText, local: datetime) -> bool:
    return cron.minutes is None or local.minute in cron.minutes


def _is_day(cron: CronText, at: int, local: datetime) -> bool:
    """Where both kinds of days are given, either may match, as in crontab(5)."""
    if cron.weekdays is not None and cron.monthdays is not None:
        return _is_weekday(cron, at, local) or _is_monthday(cron, local)
    return _is_weekday(cron, at, local) and _is_monthday(cron, local)


def _is_weekday(cron: CronText, at: int, local: datetime) -> bool:
    if cron.weekdays is None:
        return True
    today = local.isoweekday() % 7
    # Of several entries for a day fugit looks at the first: of `mon#1,mon#3` the third Monday is none.
    entry = next((entry for entry in cron.weekdays if entry[0] == today), None)
    if entry is None:
        return False
    which = entry[1]
    if which is None:
        return True
    if isinstance(which, int):
        return which == (_weeks_left(cron, at, local) if which < 0 else _weeks_gone(cron, at, local))
    modulo, plus = which
    weeks = (at - _midnight(cron, datetime(2019, 1, 1))) // _WEEK + 1
    return (weeks + plus) % modulo == 0


def _weeks_gone(cron: CronText, at: int, local: datetime) -> int:
    """The how-manieth of its kind in the month a day is."""
    return next(weeks for weeks in range(1, 7) if _local(cron, at - weeks * _WEEK).month != local.month)


def _weeks_left(cron: CronText, at: int, local: datetime) -> int:
    """-1 for the last of its kind in the month, -2 for the one before."""
    return -next(weeks for weeks in range(1, 7) if _local(cron, at + weeks * _WEEK).month != local.month)


def _is_monthday(cron: CronText, local: datetime) -> bool:
    if cron.monthdays is None:
        return True
    if cron.monthdays[0] > 0:
        return local.day in cron.monthdays
    # 24 hours before the next month, which is a day too early where its last day had 23.
    last = _local(cron, _first_of_next_month(cron, local) - _DAY).day
    return any((last + 1 + day if day < 0 else day) == local.day for day in cron.monthdays)


def _first_of_next_month(cron: CronText, local: datetime) -> int:
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    return _midnight(cron, datetime(year, month, 1))


def _midnight(cron: CronText, day: datetime) -> int:
    """The first second of a day, also where the clocks skip it."""
    start = datetime(day.year, day.month, day.day)
    return int(start.replace(tzinfo=cron.tz).timestamp())
