"""What checks report, and helpers for wording it."""

import enum
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from sidekiq_py.wire.control_characters import UNSEEN, escaped, spelled_or_byte

_NAMED = 5
_MOST_YEARS = 1000
_YEAR_SECONDS = 365.25 * 86_400
# Characters that cannot be written: bytes that are not UTF-8, as Python keeps them, and lone surrogates from JSON.
_UNWRITABLE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile(f"[{UNSEEN}]")


class Level(enum.StrEnum):
    """How serious a finding is."""

    OK = "ok"
    """In order."""
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    UNSEEN = "unseen"
    """Could not be looked at, or not completely."""
    WARNING = "warning"
    """Works, or mostly does, but will cause trouble."""
    PROBLEM = "problem"
    """Jobs do not run, run wrongly, or can be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing that a check found.

    Args:
        seen: A sentence, with numbers and names.
        advice: What to do about it; empty if there is nothing to do.
        subjects: The names of the queues, classes, processes or keys concerned. In all texts, a byte that is not UTF-8
            is written as `\\xff`.
    """

    level: Level
    seen: str
    advice: str = ""
    subjects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", writable(self.seen))
        object.__setattr__(self, "advice", writable(self.advice))
        object.__setattr__(self, "subjects", tuple(map(writable, self.subjects)))


def ok(seen: str) -> Finding:
    """A finding that all is in order."""
    return Finding(Level.OK, seen)


def note(seen: str, advice: str = "", subjects: Iterable[str] = ()) -> Finding:
    """A finding that is worth knowing."""
    return Finding(Level.NOTE, seen, advice, tuple(subjects))


def warning(seen: str, advice: str, subjects: Iterable[str] = ()) -> Finding:
    """A finding that will cause trouble."""
    return Finding(Level.WARNING, seen, advice, tuple(subjects))


def problem(seen: str, advice: str, subjects: Iterable[str] = ()) -> Finding:
    """A finding that needs fixing."""
    return Finding(Level.PROBLEM, seen, advice, tuple(subjects))


def unseen(topic: str, because: str, advice: str = "") -> Finding:
    """A finding that a check could not look: *topic* as the check has it, *because* a clause."""
    return Finding(Level.UNSEEN, f"{topic[0].upper()}{topic[1:]} could not be looked at, because {because}", advice)


def writable(text: str) -> str:
    """*text* with unwritable characters escaped: `\\xff` for a byte that is not UTF-8."""
    return _UNWRITABLE.sub(lambda found: spelled_or_byte(found[0]), text)


def is_writable(text: str) -> bool:
    """True if all of *text* is valid UTF-8."""
    return not _UNWRITABLE.search(text)


def for_shell(name: str) -> str:
    """Quote a name as one word of a bash or zsh command, even if it is not UTF-8 or has control characters."""
    if is_writable(name) and escaped(name) == name:
        return shlex.quote(name)
    # Within `$'…'`, the shell reads what `escaped` makes of a control character, which it would not in plain quotes.
    plain = name.replace("\\", "\\\\").replace("'", "\\'")
    # `\x85` is one byte to the shell, and what it makes of `\u0085` depends on the locale.
    plain = _UNSEEN.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), plain)
    return f"$'{escaped(writable(plain))}'"


def command_line(namespace: str, *words: str, operands: Iterable[str] = ()) -> str:
    """A `sidekiq-py` command line for the Redis of a namespace; *operands* are names, which may begin with a dash."""
    names = list(operands)
    options = ["--namespace", namespace] if namespace else []
    end = ["--"] if any(name.startswith("-") for name in names) else []
    return " ".join(["sidekiq-py", *map(for_shell, [*words, *options, *end, *names])])


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    all_names = list(names)
    if len(all_names) <= _NAMED + 1:
        return ", ".join(all_names)
    return f"{', '.join(all_names[:_NAMED])} and {len(all_names) - _NAMED:,} more"


def verb(number: int, one: str, many: str) -> str:
    """The form of a verb that agrees with a number."""
    return one if number == 1 else many


def span(seconds: float) -> str:
    """A duration, in a suitable unit."""
    size = abs(seconds)
    if size >= _MOST_YEARS * _YEAR_SECONDS:
        return f"more than {_MOST_YEARS:,} years"
    if size < 120:
        return f"{size:.1f} s" if size < 10 else f"{size:.0f} s"
    for limit, unit, name in ((7200, 60, "min"), (172_800, 3600, "h")):
        if size < limit:
            return f"{size / unit:.0f} {name}"
    return f"{size / 86_400:,.0f} days"
