"""
Computes when a timetable is due: the instants that match it, as fugit's `previous_time` finds them.

Everything here steps through real seconds and looks at the local time in the zone. So a time that the clocks skip is no
tick, and one that they show twice is two. Days that do not have 24 hours cause oddities, all of them fugit's: going
back from the day on which the clocks went forward, it misses the last hour of the day before.

Source: fugit 1.5.2, cron.rb, `previous_time`, `day_match?` and `TimeCursor`; et-orbi 1.2.2, `wday_in_month`, `rweek`.
"""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import islice

from sidekiq_py.extensions.periodic.cron_text import CronText

# As in fugit, which considers a timetable never due after this many steps.
_MOST_STEPS = 2048
_HOUR = 3600
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY


def previous_time(cron: CronText, now: float) -> int | None:
    """
    The last tick before *now*, in seconds since the epoch.

    As in fugit, a tick counts as passed after a whole second.

    Returns:
        None where there is none for years.
    """
    at = int(now - 1)
    for _ in range(_MOST_STEPS):
        local = _local(cron, at)
        since_midnight = local.hour * _HOUR + local.minute * 60 + local.second
        if not _allows(cron.months, local.month):
            at -= (local.day - 1) * _DAY + since_midnight + 1
        elif not _is_day(cron, at, local):
            at -= since_midnight + 1
        elif not _allows(cron.hours, local.hour):
            at -= local.minute * 60 + local.second + 1
        elif not _allows(cron.minutes, local.minute):
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

    fugit's own `next_time` skips a time that the clocks show a second time, and days without midnight. The gem only
    uses `previous_time`, which skips neither, and neither does this function.

    Returns:
        None where there is none for years.
    """
    at = int(now // 1) + 1
    for _ in range(_MOST_STEPS):
        local = _local(cron, at)
        if not _allows(cron.months, local.month):
            at = max(at + 1, _first_of_next_month(cron, local))
        elif not _is_day(cron, at, local):
            at = max(at + 1, _midnight(cron, local.replace(tzinfo=None) + timedelta(days=1)))
        elif not _allows(cron.hours, local.hour):
            at += _HOUR - local.minute * 60 - local.second
        elif not _allows(cron.minutes, local.minute):
            at += 60 - local.second
        elif cron.seconds is not None and local.second not in cron.seconds:
            later = [second for second in cron.seconds if second > local.second]
            at += later[0] - local.second if later else 60 - local.second + cron.seconds[0]
        else:
            return at
    return None


def upcoming(cron: CronText, now: float) -> Iterator[int]:
    """Yield the ticks after *now*."""
    at = next_time(cron, now)
    while at is not None:
        yield at
        at = next_time(cron, at)


def next_times(cron: CronText, now: float, count: int) -> list[datetime]:
    """
    The first *count* ticks after *now*, in the zone of the cron text.

    Raises:
        ValueError: *count* is not a whole number. With None there would be no end.
    """
    if not isinstance(count, int) or count < 0:
        raise ValueError(f"count is {count!r}; give how many ticks")
    return [_local(cron, at) for at in islice(upcoming(cron, now), count)]


def is_repeated(cron: CronText, tick: int) -> bool:
    """True if the clocks show the time of this tick for the second time."""
    return bool(_local(cron, tick).fold)


def _local(cron: CronText, at: int) -> datetime:
    return datetime.fromtimestamp(at, cron.tz)


def _allows(wanted: Collection[int] | None, value: int) -> bool:
    return wanted is None or value in wanted


def _is_day(cron: CronText, at: int, local: datetime) -> bool:
    """If both kinds of days are given, either may match, as in crontab(5)."""
    if cron.weekdays is not None and cron.monthdays is not None:
        return _is_weekday(cron, at, local) or _is_monthday(cron, local)
    return _is_weekday(cron, at, local) and _is_monthday(cron, local)


def _is_weekday(cron: CronText, at: int, local: datetime) -> bool:
    if cron.weekdays is None:
        return True
    today = local.isoweekday() % 7
    # fugit only looks at the first of several entries for a day: with `mon#1,mon#3` the third Monday does not match.
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
    """Which one of its weekday in the month a day is: 1 for the first."""
    return next(weeks for weeks in range(1, 7) if _local(cron, at - weeks * _WEEK).month != local.month)


def _weeks_left(cron: CronText, at: int, local: datetime) -> int:
    """-1 for the last one of its weekday in the month, -2 for the one before."""
    return -next(weeks for weeks in range(1, 7) if _local(cron, at + weeks * _WEEK).month != local.month)


def _is_monthday(cron: CronText, local: datetime) -> bool:
    if cron.monthdays is None:
        return True
    if cron.monthdays[0] > 0:
        return local.day in cron.monthdays
    # 24 hours before the next month, which is a day too early if its last day had 23 hours.
    last = _local(cron, _first_of_next_month(cron, local) - _DAY).day
    return any((last + 1 + day if day < 0 else day) == local.day for day in cron.monthdays)


def _first_of_next_month(cron: CronText, local: datetime) -> int:
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    return _midnight(cron, datetime(year, month, 1))


def _midnight(cron: CronText, day: datetime) -> int:
    """The first second of a day, even if the clocks skip midnight."""
    start = datetime(day.year, day.month, day.day)
    return int(start.replace(tzinfo=cron.tz).timestamp())
