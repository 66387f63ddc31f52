"""What schedules have in common, and the one that runs every so many seconds."""

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, NamedTuple

from sidekiq_celery._state import get_current_app
from sidekiq_celery.contract import App
from sidekiq_celery.utils.time import humanize_seconds, maybe_make_aware, maybe_timedelta, remaining, timezone

__all__ = ("BaseSchedule", "maybe_schedule", "schedstate", "schedule")

NowFunction = Callable[[], datetime]


class schedstate(NamedTuple):
    """
    What `is_due` says.

    Args:
        is_due: The task is to run now.
        next: Seconds until it is worth asking again.
    """

    is_due: bool
    next: float


class BaseSchedule:
    """
    A schedule; subclasses say `is_due` and `remaining_estimate`.

    Args:
        nowfun: The clock; else the app's `now`.
        app: Whose time zone and settings hold; else the current app.
    """

    def __init__(self, nowfun: NowFunction | None = None, app: App | None = None) -> None:
        self.nowfun = nowfun
        self._app = app

    def now(self) -> datetime:
        """The time by this schedule's clock."""
        if self.nowfun is not None:
            return self.nowfun()
        now: datetime = self.app.now()
        return now

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """How long it is until the next run; negative or zero if it is due."""
        raise NotImplementedError(f"{type(self).__name__} has to define remaining_estimate(last_run_at)")

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether to run now, and in how many seconds to ask again."""
        raise NotImplementedError(f"{type(self).__name__} has to define is_due(last_run_at)")

    def maybe_make_aware(self, dt: datetime, naive_as_utc: bool = True) -> datetime:
        """A time without a zone in this schedule's; taken for UTC, or for one of that zone."""
        return maybe_make_aware(dt, self.tz, naive_as_utc=naive_as_utc)

    @property
    def app(self) -> App:
        """Whose settings hold."""
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
        """*dt* in this machine's zone, where the app does not use UTC."""
        return dt if self.utc_enabled else timezone.to_local_fallback(dt)

    def __eq__(self, other: object) -> bool:
        return other.nowfun == self.nowfun if isinstance(other, BaseSchedule) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class schedule(BaseSchedule):
    """
    Every so many seconds.

    Args:
        run_every: Seconds, or a timedelta.
        relative: Runs are rounded to the unit of that: every hour on the hour.
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
        """How long it is until *last_run_at* is an interval ago."""
        last, now = self.maybe_make_aware(last_run_at), self.maybe_make_aware(self.now())
        return remaining(last, self.run_every, now, self.relative)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether to run now, and in how many seconds to ask again."""
        last = self.maybe_make_aware(last_run_at)
        seconds = self.remaining_estimate(last).total_seconds()
        if seconds > 0:
            return schedstate(is_due=False, next=seconds)
        return schedstate(is_due=True, next=self._seconds_to_boundary(last.tzinfo) if self.relative else self.seconds)

    def _seconds_to_boundary(self, zone: tzinfo | None) -> float:
        """To the next full unit: after a late run, or where clocks are changed, it is not an interval away."""
        now = self.maybe_make_aware(self.now()).astimezone(zone)
        ahead = self.remaining_estimate(now).total_seconds()
        return ahead if ahead > 0 else self.seconds

    @property
    def seconds(self) -> float:
        """The interval; never negative."""
        return max(self.run_every.total_seconds(), 0)

    @property
    def human_seconds(self) -> str:
        """The interval for people: `10.00 seconds`."""
        return humanize_seconds(self.seconds)

    def __repr__(self) -> str:
        return f"<freq: {self.human_seconds}>"

    def __eq__(self, other: object) -> bool:
        return self.run_every == (other.run_every if isinstance(other, schedule) else other)

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_every, self.relative, self.nowfun)


def maybe_schedule(s: Any, relative: bool = False, app: App | None = None) -> Any:
    """Seconds or a timedelta as a schedule; a schedule as it is, now of *app*; None for None."""
    if s is None:
        return None
    if isinstance(s, int | float | timedelta):
        return schedule(s, relative, app=app)
    s.app = app
    return s
