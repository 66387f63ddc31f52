"""
Which values of a job people do not get to see: one policy for pages, logs, command-line JSON and reports.

    Redaction(jobs={"UserMailer*": ["email", "args[0]"], "Payments::*": ["args"]})

The policy hides values, never jobs: `[redacted]` stands where a value was. Nothing in Redis changes.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Self

REDACTED = "[redacted]"

SECRET_KEYS = (
    "*password*",
    "*passwd*",
    "*secret*",
    "*token*",
    "*api_key*",
    "*apikey*",
    "*authorization*",
    "*credential*",
    "*private_key*",
    "*cookie*",
)
"""Hidden in every job unless the policy says otherwise."""

_PLACE = re.compile(r"args\[(\d{1,6})\]")
# A key in text that is not JSON as a whole. In JSON inside of a JSON string backslashes stand before each quote.
_KEY = re.compile(r'(?P<quote>\\{0,8}")(?P<key>[^"\\]{1,200})(?P=quote)\s{0,100}:\s{0,100}')
_SCALAR = re.compile(r"[^\s,}\]]*")


class Redaction:
    """
    What is hidden. Safe to share between threads.

    Args:
        keys: Globs of key names that are hidden in every job, at any depth; upper and lower case are the same.
        jobs: A glob of class names → what is hidden in those jobs: globs of key names, `args[0]` for the first
            argument, or `args` for all of them. For Active Job the class is the job's own, and so are the arguments.
    """

    def __init__(self, keys: Iterable[str] = SECRET_KEYS, jobs: Mapping[str, Iterable[str]] | None = None) -> None:
        self._keys = tuple(key.lower() for key in keys)
        self._jobs = {pattern: tuple(names) for pattern, names in (jobs or {}).items()}

    @classmethod
    def none(cls) -> Self:
        """A policy that hides nothing."""
        return cls(keys=())

    def __repr__(self) -> str:
        return f"<Redaction keys={len(self._keys)} jobs={len(self._jobs)}>"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is hidden at all."""
        return not self._keys and not self._jobs

    def apply(self, payload: Mapping[str, Any], *classes: str | None) -> dict[str, Any]:
        """
        A copy of *payload* in which hidden values are `[redacted]`.

        Args:
            payload: As parsed.
            classes: The names by which the job is known: the payload's `class`, and the class that it is shown as.
        """
        patterns, places = self._rules(classes)
        if not patterns and not places:
            return dict(payload)
        hidden: dict[str, Any] = {
            key: self._part(key, value, patterns) if key != "args" else value for key, value in payload.items()
        }
        if "args" in hidden:
            hidden["args"] = REDACTED if None in places else self._arguments(hidden["args"], patterns, places)
        return hidden

    def mask_text(self, text: str) -> str | None:
        """
        *text* that is no JSON object, with the values behind hidden keys masked as well as they can be found.

        Returns:
            None where the policy has rules for single jobs, which cannot be applied to text that names no job.
        """
        if self._jobs:
            return None
        parts, at = [], 0
        while found := _KEY.search(text, at):
            parts.append(text[at : found.end()])
            at = found.end()
            if _fits(found["key"], self._keys):
                parts.append(f"{found['quote']}{REDACTED}{found['quote']}")
                at = _end_of_value(text, at, found["quote"])
        return "".join([*parts, text[at:]])

    def _rules(self, classes: Iterable[str | None]) -> tuple[tuple[str, ...], frozenset[int | None]]:
        """Globs of keys, and places among the arguments; None stands for all of them."""
        names: list[str] = []
        for pattern, hidden in self._jobs.items():
            if any(name is not None and fnmatchcase(name, pattern) for name in classes):
                names += hidden
        places: set[int | None] = set()
        patterns = list(self._keys)
        for name in names:
            place = _PLACE.fullmatch(name)
            if name == "args":
                places.add(None)
            elif place:
                places.add(int(place[1]))
            else:
                patterns.append(name.lower())
        return tuple(patterns), frozenset(places)

    def _arguments(self, args: Any, patterns: tuple[str, ...], places: frozenset[int | None]) -> Any:
        if isinstance(args, list) and len(args) == 1 and isinstance(args[0], dict) and "job_class" in args[0]:
            # Active Job's own arguments stand one level below.
            inner = {key: self._part(key, value, patterns) for key, value in args[0].items() if key != "arguments"}
            own = args[0].get("arguments")
            return [{**inner, "arguments": self._list(own, patterns, places)}] if "arguments" in args[0] else [inner]
        return self._list(args, patterns, places)

    def _list(self, values: Any, patterns: tuple[str, ...], places: frozenset[int | None]) -> Any:
        if not isinstance(values, list):
            return self._value(values, patterns)
        return [REDACTED if at in places else self._value(value, patterns) for at, value in enumerate(values)]

    def _part(self, key: str, value: Any, patterns: tuple[str, ...]) -> Any:
        return REDACTED if _fits(key, patterns) else self._value(value, patterns)

    def _value(self, value: Any, patterns: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._part(key, part, patterns) for key, part in value.items()}
        if isinstance(value, list):
            return [self._value(part, patterns) for part in value]
        return value


def _fits(key: str, patterns: tuple[str, ...]) -> bool:
    lower = key.lower()
    return any(fnmatchcase(lower, pattern) for pattern in patterns)


def _end_of_value(text: str, start: int, quote: str) -> int:
    """Where the value ends that begins at *start*; rather too late than too early."""
    if text.startswith(quote, start):
        closing = re.compile(rf"(?<!\\)(?:\\\\)*{re.escape(quote)}" if quote == '"' else rf"(?<!\\){re.escape(quote)}")
        end = closing.search(text, start + len(quote))
        return end.end() if end else len(text)
    if text.startswith(("[", "{"), start):
        # Where a list or an object ends, nobody knows there.
        return len(text)
    scalar = _SCALAR.match(text, start)
    return scalar.end() if scalar else start
