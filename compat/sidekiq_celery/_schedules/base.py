"""The base class of schedules, and the schedule for a fixed interval."""

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, NamedTuple

from sidekiq_celery._state import get_current_app
from sidekiq_celery.contract import App
from sidekiq_celery.utils.time import humanize_seconds, maybe_make_aware, maybe_timedelta, remaining, timezone

NowFunction = Callable[[], datetime]


class schedstate(NamedTuple):
    """
    The result of `is_due`.

    Args:
        is_due: True if the task should run now.
        next: Seconds until the next check.
    """

    is_due: bool
    next: float


class BaseSchedule:
    """
    A schedule. Subclasses define `is_due` and `remaining_estimate`.

    Args:
        nowfun: The clock; by default the app's `now`.
        app: The app whose time zone and settings apply; by default the current app.
    """

    def __init__(self, nowfun: NowFunction | None = None, app: App | None = None) -> None:
        self.nowfun = nowfun
        self._app = app

    def now(self) -> datetime:
        """The current time by this schedule's clock."""
        if self.nowfun is not None:
            return self.nowfun()
        return self.app.now()

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """The time until the next run; negative or zero if it is due."""
        raise NotImplementedError(f"{type(self).__name__} has to define remaining_estimate(last_run_at)")

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether to run now, and in how many seconds to check again."""
        raise NotImplementedError(f"{type(self).__name__} has to define is_due(last_run_at)")

    def maybe_make_aware(self, dt: datetime, naive_as_utc: bool = True) -> datetime:
        """Convert a naive time to this schedule's zone; it is interpreted as UTC, or as a time in that zone."""
        return maybe_make_aware(dt, self.tz, naive_as_utc=naive_as_utc)

    @property
    def app(self) -> App:
        """The app whose settings apply."""
        return self._app or get_current_app()

    @app.setter
    def app(self, app: App | None) -> None:
        self._app = app

    @cached_property
    def tz(self) -> tzinfo:
        """The app's time zone."""
        zone: tzinfo = self.app.timezone
        return zone

    @cached_property
    def utc_enabled(self) -> bool:
        """The app's setting `enable_utc`."""
        return bool(self.app.conf.enable_utc)

    def to_local(self, dt: datetime) -> datetime:
        """*dt* in this machine's zone if the app does not use UTC."""
        return dt if self.utc_enabled else timezone.to_local_fallback(dt)

    def __eq__(self, other: object) -> bool:
        return other.nowfun == self.nowfun if isinstance(other, BaseSchedule) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class schedule(BaseSchedule):
    """
    Runs at a fixed interval.

    Args:
        run_every: Seconds, or a timedelta.
        relative: True to round the runs to the interval's unit, such as every hour on the hour.
    """

    relative: bool = False

    def __init__(
        self,
        run_every: float | timedelta | None = None,
        relative: bool = False,
        nowfun: NowFunction | None = None,
        app: App | None = None,
    ) -> None:
        self.run_every: timedelta = maybe_timedelta(run_every)
        self.relative = relative
        super().__init__(nowfun=nowfun, app=app)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """The time until *last_run_at* is one interval ago."""
        last, now = self.maybe_make_aware(last_run_at), self.maybe_make_aware(self.now())
        return remaining(last, self.run_every, now, self.relative)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether to run now, and in how many seconds to check again."""
        last = self.maybe_make_aware(last_run_at)
        seconds = self.remaining_estimate(last).total_seconds()
        if seconds > 0:
            return schedstate(is_due=False, next=seconds)
        return schedstate(is_due=True, next=self._seconds_to_boundary(last.tzinfo) if self.relative else self.seconds)

    def _seconds_to_boundary(self, zone: tzinfo | None) -> float:
        """Seconds to the next full unit, which is not one interval away after a late run or a clock change."""
        now = self.maybe_make_aware(self.now()).astimezone(zone)
        ahead = self.remaining_estimate(now).total_seconds()
        return ahead if ahead > 0 else self.seconds

    @property
    def seconds(self) -> float:
        """The interval in seconds; never negative."""
        return max(self.run_every.total_seconds(), 0)

    @property
    def human_seconds(self) -> str:
        """The interval in readable form: `10.00 seconds`."""
        return humanize_seconds(self.seconds)

    def __repr__(self) -> str:
        return f"<freq: {self.human_seconds}>"

    def __eq__(self, other: object) -> bool:
        return self.run_every == (other.run_every if isinstance(other, schedule) else other)

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_every, self.relative, self.nowfun)


def maybe_schedule(s: Any, relative: bool = False, app: App | None = None) -> Any:
    """
    Convert seconds or a timedelta to a schedule. A schedule is bound to *app* and returned; None stays None.

    Raises:
        TypeError: *s* is none of these.
    """
    if s is None:
        return None
    if isinstance(s, int | float | timedelta):
        return schedule(s, relative, app=app)
    try:
        s.app = app
    except AttributeError:
        raise TypeError(f"schedule is {s!r}; give seconds, a timedelta or a schedule such as crontab(0, 4)") from None
    return s
