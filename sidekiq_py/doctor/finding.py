"""What a check says of what it saw."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

_NAMED = 5


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    """In order."""
    NOTE = "note"
    """Worth knowing; nothing is wrong with it."""
    UNSEEN = "unseen"
    """Redis did not let this user look."""
    WARNING = "warning"
    """Works, or works mostly, and will hurt."""
    PROBLEM = "problem"
    """Jobs do not run, run wrongly or can be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing that was seen.

    Args:
        seen: A sentence, with numbers and names.
        advice: What to do about it; empty where there is nothing to do.
        subjects: What it is about: names of queues, classes, processes or keys.
    """

    level: Level
    seen: str
    advice: str = ""
    subjects: tuple[str, ...] = ()


def ok(seen: str) -> Finding:
    """In order."""
    return Finding(Level.OK, seen)


def note(seen: str, advice: str = "", subjects: Iterable[str] = ()) -> Finding:
    """Worth knowing."""
    return Finding(Level.NOTE, seen, advice, tuple(subjects))


def warning(seen: str, advice: str, subjects: Iterable[str] = ()) -> Finding:
    """Will hurt."""
    return Finding(Level.WARNING, seen, advice, tuple(subjects))


def problem(seen: str, advice: str, subjects: Iterable[str] = ()) -> Finding:
    """Hurts."""
    return Finding(Level.PROBLEM, seen, advice, tuple(subjects))


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    all_names = list(names)
    if len(all_names) <= _NAMED + 1:
        return ", ".join(all_names)
    return f"{', '.join(all_names[:_NAMED])} and {len(all_names) - _NAMED:,} more"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 job`, `1,200 jobs`."""
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def verb(number: int, one: str, many: str) -> str:
    """The form of a verb that goes with a number."""
    return one if number == 1 else many


def span(seconds: float) -> str:
    """A length of time, in the unit that suits it."""
    size = abs(seconds)
    if size < 120:
        return f"{size:.1f} s" if size < 10 else f"{size:.0f} s"
    for limit, unit, name in ((7200, 60, "min"), (172_800, 3600, "h")):
        if size < limit:
            return f"{size / unit:.0f} {name}"
    return f"{size / 86_400:.0f} days"
