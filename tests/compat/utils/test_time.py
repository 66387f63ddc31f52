"""Times: zones, clocks that are changed, intervals, rates."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sidekiq_celery.utils import local_zone
from sidekiq_celery.utils.time import (
    LocalTimezone,
    add_seconds_to_datetime,
    delta_resolution,
    ffwd,
    get_exponential_backoff_interval,
    humanize_seconds,
    localize,
    make_aware,
    maybe_iso8601,
    maybe_make_aware,
    maybe_timedelta,
    rate,
    remaining,
    subtract_datetimes,
    timezone,
    weekday,
)

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("10/s", 10), ("100/m", 100 / 60), ("1.5/s", 1.5), ("7", 7), (3, 3), (None, 0), ("", 0), ("0/s", 0)],
)
def test_rates_are_runs_per_second(text, per_second):
    """By second, minute or hour."""
    assert rate(text) == per_second


def test_an_hourly_rate_is_a_float_of_a_second():
    """To the digit as in Celery."""
    assert rate("10/h") == 10 / 60.0 / 60.0


def test_texts_are_read_as_times():
    """ISO 8601; what is a time, or nothing, stays."""
    assert maybe_iso8601("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert maybe_iso8601("2026-01-02T03:04:05.678+02:00").utcoffset() == timedelta(hours=2)
    now = datetime.now(UTC)
    assert maybe_iso8601(now) is now
    assert maybe_iso8601(None) is None


def test_seconds_are_intervals():
    """What is one, stays."""
    assert maybe_timedelta(1.5) == timedelta(seconds=1.5)
    assert maybe_timedelta(timedelta(1)) == timedelta(1)


def test_an_hour_that_clocks_show_twice_is_the_first():
    """One that they skip is as much later."""
    assert make_aware(datetime(2026, 10, 25, 2, 30), BERLIN).utcoffset() == timedelta(hours=2)
    skipped = make_aware(datetime(2026, 3, 29, 2, 30), BERLIN)
    assert (skipped.hour, skipped.minute) == (3, 30)


def test_naive_times_are_utc_unless_told():
    """And shown in the zone that is asked for."""
    noon = datetime(2026, 7, 1, 12)

    assert maybe_make_aware(noon, BERLIN).hour == 14
    assert maybe_make_aware(noon, BERLIN, naive_as_utc=False).hour == 12
    aware = noon.replace(tzinfo=BERLIN)
    assert maybe_make_aware(aware, UTC) is aware
    assert localize(noon.replace(tzinfo=UTC), BERLIN).hour == 14


def test_elapsed_time_is_not_what_clocks_show():
    """A day with a change of the clocks has 23 or 25 hours."""
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    after = datetime(2026, 3, 29, 12, tzinfo=BERLIN)

    assert subtract_datetimes(after, before) == timedelta(hours=23)
    assert add_seconds_to_datetime(before, 86400).hour == 13


@pytest.mark.parametrize(
    ("delta", "cut"),
    [
        (timedelta(days=2), datetime(2026, 3, 4)),
        (timedelta(hours=2), datetime(2026, 3, 4, 5)),
        (timedelta(minutes=2), datetime(2026, 3, 4, 5, 6)),
        (timedelta(seconds=2), datetime(2026, 3, 4, 5, 6, 7)),
    ],
)
def test_times_are_cut_to_the_unit_of_an_interval(delta, cut):
    """Days, hours, minutes."""
    assert delta_resolution(datetime(2026, 3, 4, 5, 6, 7), delta) == cut


def test_what_remains_is_real_time():
    """Until a point, and past it."""
    start = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    assert remaining(start, timedelta(seconds=30), now=start + timedelta(seconds=10)) == timedelta(seconds=20)
    assert remaining(start, timedelta(seconds=30), now=start + timedelta(seconds=40)) == timedelta(seconds=-10)


def test_what_remains_of_a_relative_day_ends_at_midnight():
    """Of the zone that the start is in, also where the day has 23 hours."""
    start = datetime(2026, 3, 28, 18, tzinfo=BERLIN)

    assert remaining(start, timedelta(days=1), now=start, relative=True) == timedelta(hours=6)


def test_a_part_of_a_time_is_set():
    """And days are added: `ffwd`."""
    start = datetime(2026, 1, 31, 5, 6, 7, 8)

    assert start + ffwd(month=2, day=31, hour=4, minute=0, second=0, microsecond=0) == datetime(2026, 2, 28, 4)
    assert (start + ffwd(weekday=1)).weekday() == 1
    assert (start + ffwd(weeks=1)).day == 7
    with pytest.raises(TypeError):
        _ = 3 + ffwd(day=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4 * 86400, "4.00 days"), (60, "1.00 minute"), (1, "1.00 second"), (7200, "2.00 hours"), (0, "now")],
)
def test_seconds_are_said_in_the_largest_unit(seconds, text):
    """For people."""
    assert humanize_seconds(seconds) == text
    assert humanize_seconds(0.5, "in ", microseconds=True) == "in 0.50 seconds"


def test_names_of_days_are_known_by_three_letters():
    """Sunday is 0."""
    assert (weekday("sunday"), weekday("Mon"), weekday("saturday")) == (0, 1, 6)
    with pytest.raises(KeyError, match="noday"):
        weekday("noday")


def test_back_off_doubles_up_to_a_limit():
    """With jitter it is anything up to that."""
    assert [get_exponential_backoff_interval(2, tries, 10) for tries in range(4)] == [2, 4, 8, 10]
    assert all(0 <= get_exponential_backoff_interval(2, 3, 10, full_jitter=True) <= 10 for _ in range(50))
    assert get_exponential_backoff_interval(-1, 3, 10) == 0


def test_this_machines_zone_is_found_by_name(monkeypatch, tmp_path):
    """In the environment, in a file, or behind a link; else by the C library."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert str(local_zone.local_zone()) == "Asia/Tokyo"

    monkeypatch.delenv("TZ")
    named = tmp_path / "timezone"
    named.write_text("Europe/Berlin\n")
    assert local_zone._from_file(named) == "Europe/Berlin"
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/America/New_York")
    assert local_zone._from_link(link).endswith("New_York")
    assert local_zone._from_file(tmp_path / "absent") == ""


@pytest.mark.parametrize("wanted", ["CET-1CEST,M3.5.0,M10.5.0/3", "/usr/share/zoneinfo/Europe/Berlin", ":Asia/Tokyo"])
def test_a_zone_in_the_environment_counts_also_without_a_name(monkeypatch, wanted):
    """The program's clock follows it, whatever the machine's own zone is."""
    monkeypatch.setenv("TZ", wanted)
    time.tzset()
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)

    found = moment.astimezone(local_zone.local_zone())
    clock = datetime.fromtimestamp(moment.timestamp())
    monkeypatch.undo()
    time.tzset()

    assert found.replace(tzinfo=None) == clock != moment.replace(tzinfo=None)


def test_the_zone_of_the_c_library_agrees_with_the_clock():
    """In both directions."""
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)

    local = moment.astimezone(LocalTimezone())

    assert local == moment
    assert local.replace(tzinfo=None) == datetime.fromtimestamp(moment.timestamp())
    assert timezone.get_timezone("Europe/Berlin") == BERLIN
