"""Cron text as fugit reads it, by what the real one answered (`ruby_fixtures/cron_texts.json`)."""

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sidekiq_py.extensions.periodic.cron_text import CronTextError, parse, phrases
from sidekiq_py.extensions.periodic.ticks import next_time, previous_time, upcoming

TABLE = Path(__file__).parents[3] / "ruby_fixtures" / "cron_texts.json"
MINUTES = 75
PARTS = 8


def recorded() -> list[dict[str, Any]]:
    """A line for each text and change of the clocks."""
    return [json.loads(line) for line in TABLE.read_text().splitlines()]


def test_many_texts_are_compared() -> None:
    """In six zones, around each change of the clocks of a year."""
    assert len({line["cron"] for line in recorded()}) >= 430


@pytest.mark.parametrize("part", range(PARTS))
def test_the_last_tick_is_fugit_s_minute_by_minute(part: int) -> None:
    """Of all these texts."""
    for line in recorded()[part::PARTS]:
        cron = parse(line["cron"])
        turns = dict(line["previous"])
        expected = 0
        for minute in range(MINUTES):
            expected = turns.get(minute, expected)
            at = line["start"] + minute * 60
            assert previous_time(cron, at) == line["start"] + expected, (line["cron"], at)


def test_the_ticks_to_come_are_those_that_will_have_been() -> None:
    """Whatever `next_time` finds, `previous_time` finds a second later, and nothing in between."""
    for line in recorded():
        cron = parse(line["cron"])
        at = line["start"]
        for tick in islice(upcoming(cron, at), 3):
            assert previous_time(cron, tick + 1) == tick
            assert (previous_time(cron, tick) or 0) <= at + 1
            at = tick


def ticks(text: str, day: str, count: int = 3) -> list[str]:
    """The first ticks from a day on, in UTC."""
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
    return [f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M}" for at in islice(upcoming(parse(text), start - 1), count)]


def test_a_time_that_the_clocks_skip_is_no_tick_and_one_that_they_repeat_is_two() -> None:
    """As fugit 1.3.8, 1.5.2 and 1.14 have it."""
    assert ticks("30 2 * * * Europe/Berlin", "2026-03-28") == ["03-28 01:30", "03-30 00:30", "03-31 00:30"]
    assert ticks("30 2 * * * Europe/Berlin", "2026-10-25") == ["10-25 00:30", "10-25 01:30", "10-26 01:30"]


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("61 * * * *", 1, "'61' is not a valid minute; use 0 to 59"),
        ("* 25 * * *", 3, "'25' is not a valid hour; use 0 to 24"),
        ("* * 32 * *", 5, "'32' is not a valid day of the month"),
        ("* * * foo *", 7, "'foo' is not a valid month; use 1 to 12, or jan to dec"),
        ("* * * * 1,8", 11, "'8' is not a valid day of the week"),
        ("* * * * monday", 9, "'monday' is not a valid day of the week"),
        ("1,,2 * * * *", 3, "is missing beside a comma"),
        ("*/0 * * * *", 1, "a step of 0"),
        ("0 0 31 2 *", 5, "none of these months has such a day"),
        ("0 0 -5-3 * *", 5, "must end there, too"),
        ("* * * * * Mars/Olympus", 11, "Mars/Olympus is not a time zone"),
        ("* * * * * +14:00", 11, "too far from UTC"),
        ("* * * *", 1, "4 fields"),
        ("* * * * * * * *", 15, "nothing may follow the zone"),
        ("10 ~ * * *", 4, "newer releases of fugit"),
        ("0 0 * * mon#1,mon%2", 9, "both # and %"),
        ("0 0 * * mon%0", 9, "0th week"),
        ("@reboot", 1, "not a time that a fleet could share"),
        ("every now and then", 1, "neither cron"),
        ("", 1, "neither cron"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(text: str, position: int, part: str) -> None:
    """The position is counted from 1."""
    with pytest.raises(CronTextError) as caught:
        parse(text)
    assert part in str(caught.value)
    assert caught.value.position == position


def test_a_very_long_zone_takes_no_time() -> None:
    """Any program may have written it, and the worker that fires all periodic jobs reads it every five seconds."""
    started = monotonic()

    with pytest.raises(CronTextError):
        parse("0 9 * * * A" + "a" * 30_000)

    assert monotonic() - started < 1.0


def test_the_text_is_stored_with_its_zone() -> None:
    """Without one each Ruby process would read it in a zone of its own."""
    assert str(parse("@daily")) == "0 0 * * * Etc/UTC"
    assert str(parse("0  9 * * *", zone="Europe/Berlin")) == "0 9 * * * Europe/Berlin"
    assert str(parse("0 9 * * * +02:00")) == "0 9 * * * +02:00"
    assert parse("0 9 * * * Europe/Berlin2").zone == "Europe/Berlin"


def test_phrases_are_those_that_both_releases_read_alike() -> None:
    """Each stands for a text that can be read."""
    assert len(phrases()) > 500
    assert str(parse("every weekday at noon")) == "0 12 * * 1-5 Etc/UTC"
    for text in phrases().values():
        assert previous_time(parse(text), 1_900_000_000) is not None


def test_what_is_never_due_has_no_ticks() -> None:
    """The search ends."""
    never = parse("0 0 * 1 mon%4000+3")
    assert next_time(never, 1_900_000_000) is None
    assert previous_time(never, 1_900_000_000) is None
