"""The schedule that runs at times of day, like cron."""

from collections.abc import Iterator, Mapping
from datetime import MAXYEAR, date, datetime, timedelta, tzinfo
from typing import Any

from sidekiq_celery._schedules.base import BaseSchedule, schedstate
from sidekiq_celery._schedules.parser import Cronspec, expand
from sidekiq_celery.utils.time import ffwd, remaining, timezone

# With the longest February.
_LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


class crontab(BaseSchedule):
    """
    Runs at the minutes, hours and days that all five fields allow. A day must be allowed by all three day fields.

    Each field is a number, a list or set of numbers, or a string: `*`, `*/15`, `8-18/2`, `1,13,30-45`, `mon-fri`.

    Args:
        minute: 0 to 59.
        hour: 0 to 23, in the app's time zone.
        day_of_week: 0 (Sunday) to 6, or names.
        day_of_month: 1 to 31.
        month_of_year: 1 to 12, or names.
        kwargs: `nowfun` and `app`.

    Raises:
        ParseException: A field cannot be read.
        ValueError: A number is out of range, or no month has such a day.
    """

    def __init__(
        self,
        minute: Cronspec = "*",
        hour: Cronspec = "*",
        day_of_week: Cronspec = "*",
        day_of_month: Cronspec = "*",
        month_of_year: Cronspec = "*",
        **kwargs: Any,
    ) -> None:
        self._orig_minute = _given(minute)
        self._orig_hour = _given(hour)
        self._orig_day_of_week = _given(day_of_week)
        self._orig_day_of_month = _given(day_of_month)
        self._orig_month_of_year = _given(month_of_year)
        self._orig_kwargs = kwargs
        self.hour = self._expand_cronspec(hour, 24)
        self.minute = self._expand_cronspec(minute, 60)
        self.day_of_week = self._expand_cronspec(day_of_week, 7)
        self.day_of_month = self._expand_cronspec(day_of_month, 31, 1)
        self.month_of_year = self._expand_cronspec(month_of_year, 12, 1)
        if not any(day <= _LONGEST[month] for month in self.month_of_year for day in self.day_of_month):
            raise ValueError(
                f"Invalid crontab: day_of_month {self._orig_day_of_month!r} never occurs in "
                f"month_of_year {self._orig_month_of_year!r}."
            )
        super().__init__(**kwargs)

    @classmethod
    def from_string(cls, crontab: str) -> "crontab":
        """Parse a cron line: minute, hour, day of the month, month, day of the week, separated by single spaces."""
        minute, hour, day_of_month, month_of_year, day_of_week = crontab.split(" ")
        return cls(minute, hour, day_of_week, day_of_month, month_of_year)

    @staticmethod
    def _expand_cronspec(cronspec: Cronspec, max_: int, min_: int = 0) -> set[int]:
        return expand(cronspec, max_, min_)

    def remaining_delta(
        self, last_run_at: datetime, tz: str | tzinfo | None = None, ffwd: type[ffwd] = ffwd
    ) -> tuple[datetime, Any, datetime]:
        """
        The last run, the offset to the next one, and now. The times are in *tz*, or else in the schedule's zone.
        """
        zone = timezone.get_timezone(tz or self.tz)
        last = self.maybe_make_aware(last_run_at).astimezone(zone)
        now = self.maybe_make_aware(self.now()).astimezone(zone)
        return last, ffwd(**self._step(last), second=0, microsecond=0), now

    def _delta_to_next(self, last_run_at: datetime, next_hour: int, next_minute: int) -> Any:
        """The offset to the next day of a run, at that time; for subclasses."""
        day = next(self._days_after(last_run_at.date()))
        return ffwd(
            year=day.year, month=day.month, day=day.day, hour=next_hour, minute=next_minute, second=0, microsecond=0
        )

    def remaining_estimate(self, last_run_at: datetime, ffwd: type[ffwd] = ffwd) -> timedelta:
        """The time until the next run after *last_run_at*; negative if it has passed."""
        return remaining(*self.remaining_delta(last_run_at, ffwd=ffwd))

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """
        Whether to run now, and in how many seconds to check again.

        A run that was missed by more than `beat_cron_starting_deadline` is skipped.
        """
        seconds = self.remaining_estimate(last_run_at).total_seconds()
        if seconds > 0:
            return schedstate(is_due=False, next=seconds)
        is_missed = seconds < 0 and self._is_past_the_deadline()
        ahead = self.remaining_estimate(self.now()).total_seconds()
        return schedstate(is_due=not is_missed, next=max(ahead, 0))

    def _is_past_the_deadline(self) -> bool:
        deadline_seconds = self.app.conf.beat_cron_starting_deadline
        if deadline_seconds is None:
            return False
        now = self.maybe_make_aware(self.now())
        # One microsecond more, so that a run exactly at the deadline still counts.
        before = timedelta(seconds=deadline_seconds, microseconds=1)
        since = (now.astimezone(timezone.utc) - before).astimezone(now.tzinfo)
        return self.remaining_estimate(since).total_seconds() > 0

    def _step(self, last: datetime) -> dict[str, int]:
        """The fields of the next run that differ from those of *last*, except seconds."""
        if self._allows(last.date()):
            minutes = [minute for minute in self.minute if minute > last.minute]
            if last.hour in self.hour and minutes:
                return {"minute": min(minutes)}
            hours = [hour for hour in self.hour if hour > last.hour]
            if hours:
                return {"hour": min(hours), "minute": min(self.minute)}
        day = next(self._days_after(last.date()))
        return {
            "year": day.year, "month": day.month, "day": day.day, "hour": min(self.hour), "minute": min(self.minute)
        }  # fmt: skip

    def _allows(self, day: date) -> bool:
        return (
            day.month in self.month_of_year
            and day.day in self.day_of_month
            and day.isoweekday() % 7 in self.day_of_week
        )

    def _days_after(self, last: date) -> Iterator[date]:
        """
        Yield the days after *last* that have runs.

        Raises:
            RuntimeError: There is no such day before the end of the calendar.
        """
        for year in range(last.year, MAXYEAR + 1):
            for month in sorted(self.month_of_year):
                for number in sorted(self.day_of_month):
                    if (year, month, number) <= (last.year, last.month, last.day):
                        continue
                    day = _day(year, month, number)
                    if day is not None and day.isoweekday() % 7 in self.day_of_week:
                        yield day
        raise RuntimeError(f"{self!r} has no run after {last}; give it days that occur")

    def __repr__(self) -> str:
        days = f"{self._orig_day_of_month} {self._orig_month_of_year} {self._orig_day_of_week}"
        return f"<crontab: {self._orig_minute} {self._orig_hour} {days} (m/h/dM/MY/d)>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, crontab):
            return NotImplemented
        return self._fields() == other._fields() and self.nowfun == other.nowfun

    __hash__ = None

    def _fields(self) -> tuple[set[int], ...]:
        return self.minute, self.hour, self.day_of_week, self.day_of_month, self.month_of_year

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._orig_minute, self._orig_hour, self._orig_day_of_week)
        return type(self), (*given, self._orig_day_of_month, self._orig_month_of_year), self._orig_kwargs

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        BaseSchedule.__init__(self, **state)
        self._orig_kwargs = dict(state)


def _given(field: Cronspec | None) -> Cronspec:
    return "*" if field is None else field


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
