"""Cron texts for comparing fugit with our parser: chosen and random ones, around clock changes."""

import json
import random
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from interop_tests import roots

# Zones with two changes a year, in both hemispheres; one with a change of half an hour, and one at midnight.
ZONES = (
    *("Europe/Berlin", "America/New_York", "Australia/Sydney"),
    *("America/Santiago", "Australia/Lord_Howe", "Europe/London"),
)
YEAR = 2024
MINUTE = 60

CHOSEN = (
    *("* * * * *", "*/5 * * * *", "30 2 * * *", "0 2 * * *", "15 1 * * *", "30 1 * * *", "0 3 * * *", "59 2 * * *"),
    *("0 0 * * *", "30 0 * * *", "30 23 * * *", "0 * * * *", "0 */2 * * *", "0 1-5 * * *", "20-40/10 0-4 * * *"),
    *("0 9 * * mon-fri", "0 9 * * 1-5", "0 0 * * 0", "0 0 * * 7", "0 0 * * sun", "0 0 * * SAT,Sun", "5 4 * * fri-mon"),
    *("0 0 1 * *", "0 0 L * *", "0 0 last * *", "0 12 -1 * *", "0 12 -2 * *", "0 0 -3-L * *", "0 0 1-L * *"),
    *(
        "0 0 31 * *",
        "0 0 29 feb *",
        "0 0 30 4,6 *",
        "0 0 31 jan-mar *",
        "0 12 15 */3 *",
        "0 0 1 1 *",
        "0 0 1 nov-feb *",
    ),
    *("0 0 13 * 5", "0 0 1,15 * mon", "30 4 1,15 * 5", "0 0 */2 * 2", "0 0 * * */2", "0 0 * * 1-5/2", "0 0 * * mon/2"),
    *("0 0 * * mon#1", "0 0 * * fri#l", "0 0 * * sun#-1", "30 2 * * sun#l", "0 0 * * 3#2,5#4", "0 0 * * mon#1,mon#3"),
    *("0 0 * * sun#last", "0 2 * 3,10 sun#-1", "0 0 * * tue%2", "0 0 * * wed%3+1", "0 0 * * mon%4,tue%4+2"),
    *(
        "0 24 * * *",
        "0 20-24 * * *",
        "0 22-3 * * *",
        "50-10 * * * *",
        "*/7 */5 * * *",
        "3/20 1/6 * * *",
        "5/10 2 * * *",
    ),
    *(
        "0,15,30,45 2,3 * * *",
        "*,5 2 * * *",
        "0 1,*/3 * * *",
        "/15 * * * *",
        "1-59/2 2 * * *",
        "* 2 * * *",
        "*/1 2 * * *",
    ),
    *("15 30 2 * * *", "*/20 * 2 * * *", "0 30 2 * * *", "45-15/10 59 1 * * *", "* 0 3 * * *", "30 */10 1-3 * * sun"),
    *("0 6 * * *", "10 3 28-31 * *"),
    *("@daily", "@hourly", "@weekly", "@monthly", "@yearly", "@noon", "@midnight", "@annually"),
)
"""Texts with an @ have no zone; all others are tested in each of the six."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "FRI", "Sat")
_MONTHDAYS = ("L", "last", "-1", "-3", "-5--2", "-7-L", "1-L", "-31", "5--3")
_SPECIAL_WEEKDAYS = ("mon#1", "tue#2", "fri#L", "sun#-1", "4#-2", "wed%2", "thu%3+1", "mon#1,tue#3")


@cache
def changes(zone: str) -> tuple[int, ...]:
    """When the clocks of a zone change in the year, in seconds since the epoch."""
    tz = ZoneInfo(zone)
    start = int(datetime(YEAR, 1, 1, tzinfo=UTC).timestamp())
    halves = [start + half * 1800 for half in range(366 * 48)]
    offsets = [datetime.fromtimestamp(at, tz).utcoffset() for at in halves]
    return tuple(at for at, before, after in zip(halves[1:], offsets, offsets[1:], strict=False) if before != after)


def chosen() -> Iterator[tuple[str, str]]:
    """Yield each chosen text with each zone, around whose clock changes it is tested."""
    for text in CHOSEN:
        for zone in ZONES:
            yield (text if text.startswith("@") else f"{text} {zone}"), zone


def at_random(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random texts, each with its zone."""
    draw = random.Random(seed)
    for _ in range(count):
        zone = draw.choice(ZONES)
        yield f"{_text(draw)} {zone}", zone


def _text(draw: random.Random) -> str:
    fields = [
        _field(draw, 0, 59),
        _field(draw, 0, 24),
        _field(draw, 1, 31, extra=_MONTHDAYS) if draw.random() < 0.5 else "*",
        _field(draw, 1, 12, _MONTHS) if draw.random() < 0.35 else "*",
        _field(draw, 0, 7, _WEEKDAYS, _SPECIAL_WEEKDAYS) if draw.random() < 0.5 else "*",
    ]
    if draw.random() < 0.12:
        fields.insert(0, _field(draw, 0, 59))
    return " ".join(fields)


def _field(
    draw: random.Random, low: int, high: int, names: Sequence[str] = (), extra: Sequence[str] = (), depth: int = 0
) -> str:
    def value() -> str:
        return draw.choice(names) if names and draw.random() < 0.3 else str(draw.randint(low, high))

    kind = draw.random()
    if kind < 0.45:
        return "*"
    if kind < 0.55:
        return f"*/{draw.randint(1, high)}"
    if kind < 0.72 or depth > 1:
        return value()
    if kind < 0.82:
        return f"{value()}-{value()}"
    if kind < 0.88:
        return f"{value()}-{value()}/{draw.randint(1, 9)}"
    if kind < 0.92:
        return f"{value()}/{draw.randint(1, 9)}"
    if kind < 0.94 and extra:
        return draw.choice(extra)
    return ",".join(_field(draw, low, high, names, extra, depth + 1) for _ in range(draw.randint(2, 3)))


def ask_fugit(root: roots.Root, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of a root's fugit; see `ruby_fixtures/cron_text.rb`."""
    command = root.command("ruby", "ruby_fixtures/cron_text.rb")
    ran = subprocess.run(
        command, input="\n".join(map(json.dumps, questions)), capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]
