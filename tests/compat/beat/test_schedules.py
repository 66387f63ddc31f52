"""Schedules: when they are due, and how they are written."""

import json
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sidekiq_celery import Celery
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.schedules import BaseSchedule, ParseException, crontab, maybe_schedule, schedstate, schedule, solar

from tests.compat.beat.beats import sunset

# What Celery 5.7.0 says of random crontabs and moments, many around changes of the clocks.
CASES = [json.loads(line) for line in (Path(__file__).parent / "crontabs_of_celery.jsonl").read_text().splitlines()]


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app without a broker."""
    with Celery("proj", set_as_current=False, fixups=[]) as one:
        yield one


def moment(text: str, zone: str, fold: int = 0) -> datetime:
    """A time as it is written in the cases."""
    read = datetime.fromisoformat(text)
    is_in_zone = read.tzinfo is not None and read.utcoffset() != timedelta(0)
    return read.astimezone(ZoneInfo(zone)) if is_in_zone else read.replace(fold=fold)


def at(*fields: int, zone: str = "UTC", fold: int = 0) -> datetime:
    """A time in a zone."""
    return datetime(*fields, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_crontabs_say_what_celery_says(app: Celery, case: dict[str, Any]) -> None:
    """Due or not, the seconds to wait, and the kind of error are the same."""
    app.conf.timezone = case["zone"]
    app.conf.beat_cron_starting_deadline = case["deadline"]
    now = datetime.fromisoformat(case["now"]).astimezone(ZoneInfo(case["zone"]))
    last = moment(case["last"], case["zone"], case["last_fold"])

    if "error" in case:
        with pytest.raises((ParseException, ValueError)) as refused:
            crontab(*case["fields"], nowfun=lambda: now, app=app)
        assert type(refused.value).__name__ == case["error"]
    else:
        is_due, seconds = crontab(*case["fields"], nowfun=lambda: now, app=app).is_due(last)
        assert (is_due, round(seconds, 6)) == (case["due"], case["next"])


@pytest.mark.parametrize(
    ("zone", "before", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 28, 3, 30), 23),
        ("Europe/Berlin", (2026, 10, 24, 3, 30), 25),
        ("America/New_York", (2026, 3, 7, 3, 30), 23),
        ("America/New_York", (2026, 10, 31, 3, 30), 25),
        ("Australia/Lord_Howe", (2026, 10, 3, 3, 30), 23.5),
        ("Australia/Lord_Howe", (2026, 4, 4, 3, 30), 24.5),
    ],
)
def test_a_daily_run_stays_at_its_time_of_day_when_clocks_change(
    app: Celery, zone: str, before: tuple[int, ...], hours: float
) -> None:
    """The day between is shorter or longer, by half an hour on Lord Howe Island."""
    app.conf.timezone = zone
    last = at(*before, zone=zone)

    daily = crontab(minute=30, hour=3, nowfun=lambda: last, app=app)

    assert daily.is_due(last) == (False, hours * 3600)


def test_crontabs_rest_in_the_hour_that_comes_twice(app: Celery) -> None:
    """As in Celery, even those of every minute: the next run is the first one after the last one's time of day."""
    app.conf.timezone = "Europe/Berlin"
    now = datetime(2027, 10, 31, 1, 10, tzinfo=UTC)
    last = at(2027, 10, 31, 2, 59, zone="Europe/Berlin")

    every_minute = crontab(nowfun=lambda: now, app=app)

    assert every_minute.is_due(last) == (False, 50 * 60)


def test_an_interval_is_elapsed_time_when_clocks_change(app: Celery) -> None:
    """An hour after 02:30 of the night with two of them is the second 02:30."""
    app.conf.timezone = "Europe/Berlin"
    last = at(2026, 10, 25, 2, 30, zone="Europe/Berlin")

    hourly = schedule(3600, nowfun=lambda: last, app=app)

    assert hourly.remaining_estimate(last) == timedelta(hours=1)


@settings(max_examples=150, deadline=None)
@given(
    minute=st.sets(st.integers(0, 59), min_size=1),
    hour=st.sets(st.integers(0, 23), min_size=1),
    last=st.datetimes(datetime(2000, 1, 1), datetime(2080, 1, 1)),
)
def test_the_next_run_is_at_the_first_minute_that_all_fields_allow(
    minute: set[int], hour: set[int], last: datetime
) -> None:
    """Counted out minute by minute."""
    start = last.replace(tzinfo=UTC)
    app = Celery("proj", set_as_current=False, fixups=[])

    waits = crontab(minute, hour, nowfun=lambda: start, app=app).remaining_estimate(start)

    wanted = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while wanted.minute not in minute or wanted.hour not in hour:
        wanted += timedelta(minutes=1)
    assert start + waits == wanted


def test_a_day_that_no_month_has_is_refused() -> None:
    """As soon as the schedule is written, not when beat looks for it."""
    with pytest.raises(ValueError, match=r"30 never occurs in month_of_year 2"):
        crontab(day_of_month=30, month_of_year=2)


def test_a_field_of_another_type_is_refused() -> None:
    """With the type that was given."""
    with pytest.raises(TypeError, match="float"):
        crontab(minute=1.5)  # type: ignore[arg-type]


def test_a_line_of_cron_has_its_days_in_crons_order() -> None:
    """Day of the month and month come before the day of the week."""
    assert crontab.from_string("5 4 1 jan mon") == crontab(5, 4, "mon", 1, "jan")
    assert repr(crontab.from_string("5 4 1 jan mon")) == "<crontab: 5 4 1 jan mon (m/h/dM/MY/d)>"


@pytest.mark.parametrize(
    "make",
    [lambda: crontab("*/5", 3, "mon-fri"), lambda: schedule(12.5, relative=True), sunset],
    ids=["crontab", "schedule", "solar"],
)
def test_schedules_survive_being_pickled(make: Callable[[], BaseSchedule]) -> None:
    """Programs keep them in databases."""
    one = make()
    assert pickle.loads(pickle.dumps(one)) == one


def test_schedules_are_equal_by_what_they_mean() -> None:
    """Not by how they are written."""
    assert crontab(minute="0,30") == crontab(minute="*/30")
    assert crontab(minute=1) != crontab(minute=2)
    assert schedule(60) == timedelta(minutes=1)
    assert schedule(60) != schedule(61)
    assert crontab() != schedule(60)


def test_numbers_and_intervals_become_schedules(app: Celery) -> None:
    """Seconds or a timedelta; a schedule stays, and becomes one of the app."""
    own = crontab()

    assert maybe_schedule(30, app=app).run_every == timedelta(seconds=30)
    assert maybe_schedule(timedelta(minutes=1)).seconds == 60
    assert maybe_schedule(own, app=app) is own
    assert own.app is app
    assert maybe_schedule(None) is None


def test_a_relative_interval_ends_on_the_full_unit(app: Celery) -> None:
    """Every hour, on the hour."""
    now = at(2026, 5, 1, 10, 20)

    hourly = schedule(3600, relative=True, nowfun=lambda: now, app=app)

    assert hourly.is_due(now) == (False, 40 * 60)
    assert hourly.is_due(now - timedelta(hours=2)) == (True, 40 * 60)


def test_programs_may_have_schedules_of_their_own(app: Celery) -> None:
    """`BaseSchedule` gives them clock and zone."""

    class OnSundays(BaseSchedule):
        def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
            return schedstate(self.now().isoweekday() == 7, 60)

    assert OnSundays(nowfun=lambda: at(2026, 11, 22), app=app).is_due(at(2026, 1, 1)) == (True, 60)
    with pytest.raises(NotImplementedError, match="remaining_estimate"):
        OnSundays(app=app).remaining_estimate(at(2026, 1, 1))


def test_the_sun_rises_a_little_later_each_day_in_autumn(app: Celery) -> None:
    """A solar schedule finds the next event after the last run."""
    pytest.importorskip("ephem")
    now = at(2026, 11, 20, 0, 0)

    sunrise = solar("sunrise", 52.5, 13.4, nowfun=lambda: now, app=app)

    assert timedelta(hours=6) < sunrise.remaining_estimate(now) < timedelta(hours=7)
    assert sunrise.is_due(now - timedelta(days=2)).is_due  # type: ignore[attr-defined]


def test_the_polar_night_is_waited_out(app: Celery) -> None:
    """The next sunrise in Tromsø is in January."""
    pytest.importorskip("ephem")
    now = at(2026, 12, 1)

    waits = solar("sunrise", 69.6, 18.9, nowfun=lambda: now, app=app).remaining_estimate(now)

    assert timedelta(days=40) < waits < timedelta(days=55)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("noon", 0, 0), "solar_noon"), (("sunset", 91, 0), "latitude 91"), (("sunset", 0, -181), "longitude -181")],
)
def test_no_such_event_or_place_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    """With what would be right."""
    pytest.importorskip("ephem")
    with pytest.raises(ValueError, match=message):
        solar(*arguments)


def test_a_program_can_offer_all_solar_events() -> None:
    """Under Celery's name: django-celery-beat compares its choices with them."""
    assert len(solar._all_events) == 9
    assert {"sunrise", "solar_noon", "dusk_civil"} < solar._all_events


def test_without_ephem_a_solar_schedule_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an extra."""
    monkeypatch.setitem(__import__("sys").modules, "ephem", None)

    with pytest.raises(ImproperlyConfigured, match=r"sidekiq-py\[solar\]"):
        solar("sunset", 0, 0)
