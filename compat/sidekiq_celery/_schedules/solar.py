"""The schedule that follows the sun."""

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, ClassVar

from sidekiq_celery._schedules.base import BaseSchedule, schedstate
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.time import subtract_datetimes

# Event: the sun's height at the horizon in degrees, ephem's method, and whether the sun's centre counts.
_EVENTS = {
    "dawn_astronomical": ("-18", "next_rising", True),
    "dawn_nautical": ("-12", "next_rising", True),
    "dawn_civil": ("-6", "next_rising", True),
    "sunrise": ("-0:34", "next_rising", False),
    "solar_noon": ("0", "next_transit", False),
    "sunset": ("-0:34", "next_setting", False),
    "dusk_civil": ("-6", "next_setting", True),
    "dusk_nautical": ("-12", "next_setting", True),
    "dusk_astronomical": ("-18", "next_setting", True),
}


class solar(BaseSchedule):
    """
    Runs at a solar event.

    Args:
        event: `dawn_astronomical`, `dawn_nautical`, `dawn_civil`, `sunrise`, `solar_noon`, `sunset`, `dusk_civil`,
            `dusk_nautical` or `dusk_astronomical`.
        lat, lon: Degrees.
        kwargs: `nowfun` and `app`.

    Raises:
        ImproperlyConfigured: The package `ephem` is not installed.
        ValueError: The event or the location is invalid.
    """

    # Celery's name: programs offer these as choices, as django-celery-beat does.
    _all_events: ClassVar[frozenset[str]] = frozenset(_EVENTS)
    max_search_days: ClassVar[int] = 366
    """How far ahead to search if an event does not happen every day."""

    def __init__(self, event: str, lat: float, lon: float, **kwargs: Any) -> None:
        try:
            self.ephem: Any = import_module("ephem")
        except ImportError as error:
            raise ImproperlyConfigured(
                "solar schedules need the package ephem: pip install 'sidekiq-py[solar]'"
            ) from error
        if event not in _EVENTS:
            raise ValueError(f'Argument event "{event}" is invalid, must be one of {", ".join(sorted(_EVENTS))}.')
        if not -90 <= lat <= 90:
            raise ValueError(f"Argument latitude {lat} is invalid, must be between -90 and 90.")
        if not -180 <= lon <= 180:
            raise ValueError(f"Argument longitude {lon} is invalid, must be between -180 and 180.")
        self.event, self.lat, self.lon = event, lat, lon
        super().__init__(**kwargs)
        horizon, self.method, self.use_center = _EVENTS[event]
        self.cal = self.ephem.Observer()
        self.cal.lat, self.cal.lon = str(lat), str(lon)
        self.cal.elev, self.cal.pressure, self.cal.horizon = 0, 0, horizon

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """The time until the first event after *last_run_at*."""
        last = self.maybe_make_aware(last_run_at).astimezone(UTC)
        self.cal.date = last
        ahead = self._next_event(self.ephem.Date(last)).datetime()
        return subtract_datetimes(self.maybe_make_aware(ahead), self.maybe_make_aware(self.now()))

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether to run now, and in how many seconds to check again."""
        seconds = self.remaining_estimate(last_run_at).total_seconds()
        if seconds > 0:
            return schedstate(is_due=False, next=seconds)
        return schedstate(is_due=True, next=max(self.remaining_estimate(self.now()).total_seconds(), 0))

    def _next_event(self, start: Any) -> Any:
        """The first event after *start*; if the sun stays up or down for a year, the end of the search."""
        sun = self.ephem.Sun()
        centre = {"use_center": True} if self.use_center else {}
        for _ in range(self.max_search_days):
            try:
                return getattr(self.cal, self.method)(sun, start=start, **centre)
            except self.ephem.CircumpolarError:
                start = self.cal.next_antitransit(sun, start=start)
        return start

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, solar):
            return NotImplemented
        return (self.event, self.lat, self.lon) == (other.event, other.lat, other.lon)

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.event, self.lat, self.lon)

    def __repr__(self) -> str:
        return f"<solar: {self.event} at latitude {self.lat}, longitude: {self.lon}>"
