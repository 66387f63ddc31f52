"""
Records how fugit interprets cron texts and phrases.

    python -m interop_tests.record_cron_texts

writes `ruby_fixtures/cron_texts.json` (with fugit 1.5.2 from bookworm), and the phrases that this release and 1.3.8
from bullseye read in the same way.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

from interop_tests import roots
from interop_tests.support.cron_texts import MINUTE, ask_fugit, changes, chosen

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE = REPOSITORY / "ruby_fixtures" / "cron_texts.json"
PHRASES = REPOSITORY / "sidekiq_py" / "extensions" / "periodic" / "phrases.json"
MINUTES = 75

_HOURS = ("midnight", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "noon")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NTHS = ("first", "second", "third", "1st", "2nd", "3rd", "5th", "10th", "15th", "20th")
_COUNTS = {
    "seconds": (5, 10, 15, 20, 30),
    "minutes": (2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 45),
    "hours": (2, 3, 4, 6, 8, 12),
    "days": (2, 3),
    "months": (2, 3, 6),
}


def phrases() -> list[str]:
    """English phrases that fugit might understand."""
    weekdays = [f"every {day}" for day in _DAYS]
    quarters = [(hour, minute) for hour in range(24) for minute in (0, 15, 30, 45)]
    found = [
        *(f"every {unit}" for unit in ["second", "minute", "hour", "day", "week", "month", "year", "weekday"]),
        *(f"every {count} {unit}" for unit, counts in _COUNTS.items() for count in counts),
        *(f"every {day}" for day in (*_DAYS, *(day[:3] for day in _DAYS))),
        *(f"{every} at {hour}" for every in ("every day", "every weekday", *weekdays) for hour in _HOURS),
        *(f"every day at {hour} {half}" for hour in _HOURS[1:12] for half in ("am", "pm")),
        *(f"every day at {hour}:{minute:02}" for hour, minute in quarters),
        *(f"every day at {hour:02}:{minute:02}" for hour, minute in quarters if hour < 10),
        *(f"{every} at {hour:02}:00" for every in (*weekdays, "every weekday") for hour in range(24)),
        *(f"every {nth} of the month" for nth in _NTHS),
        *(f"every {one} and {other}" for one, other in product(_DAYS, _DAYS) if one != other),
        *("every monday through friday", "every mon-fri", "every monday to friday at five"),
        *("every day at noon and midnight", "every day at five and six", "every hour at minute 15"),
        "from monday to friday at 9:00",
    ]
    return list(dict.fromkeys(found))


def question(text: str, zone: str, change: int) -> dict[str, Any]:
    """The question about a text around a clock change."""
    start = change - MINUTES // 3 * MINUTE
    return {"cron": text, "every": [start, MINUTE, MINUTES], "next": 0, "zone": zone}


def main() -> None:
    """Record both files."""
    bullseye, bookworm = roots.build("bullseye"), roots.build("bookworm")
    texts = [question(text, zone, change) for text, zone in chosen() for change in changes(zone)]
    with TABLE.open("w") as file:
        for asked, answer in zip(texts, ask_fugit(bookworm, texts), strict=True):
            start = asked["every"][0]
            # Of consecutive equal answers, keep the first one with the number of its minute.
            previous = answer.get("previous", [])
            turns = [[at, tick - start] for at, tick in enumerate(previous) if at == 0 or tick != previous[at - 1]]
            line = {"cron": asked["cron"], "start": start, "previous": turns, "refused": answer.get("refused")}
            file.write(json.dumps(line) + "\n")
    asked = [{"cron": phrase, "at": []} for phrase in phrases()]
    pairs = zip(phrases(), ask_fugit(bullseye, asked), ask_fugit(bookworm, asked), strict=True)
    alike = {phrase: new["cron"] for phrase, old, new in pairs if "cron" in new and old.get("cron") == new["cron"]}
    PHRASES.write_text(json.dumps(alike, indent=0) + "\n")
    print(f"{len(texts)} questions about texts, {len(alike)} phrases")


if __name__ == "__main__":
    main()
