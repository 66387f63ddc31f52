"""
Which values of a job people do not get to see: one policy for pages, logs, command-line JSON and reports.

    sidekiq.configure(redaction=Redaction(jobs={"UserMailer*": ["email", "args[0]"], "Payments::*": ["args"]}))

The policy hides values, never jobs: `[redacted]` stands where a value was. Nothing in Redis changes. `current()` is the
policy of this process, which every exit asks: logs, the command line, the dashboard, Sentry and traces.
"""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from sidekiq_py.errors import ConfigError

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
# A key in text that is not JSON as a whole, or is a dict as Python spells it. In JSON inside of a JSON string
# backslashes stand before each quote.
_KEY = re.compile(r"""(?P<quote>\\{0,8}["'])(?P<key>[^"'\\]{1,200})(?P=quote)\s{0,100}:\s{0,100}""")
_QUOTE = re.compile(r"""\\{0,8}["']""")
_SCALAR = re.compile(r"[^\s,}\]]*")
# Keys longer than this are compared each time, as a cache of them would hold any amount of memory.
_LONGEST_KEY = 100
_VARIABLE = "SIDEKIQ_REDACTION"
_MAILERS = ("ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob")


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

    @classmethod
    def of_settings(cls, given: Any, name: str) -> Self:
        """
        The policy that a file describes: a mapping with `keys`, `jobs` or both.

        Args:
            name: Where it stands, for errors.

        Raises:
            ConfigError: It cannot be used.
        """
        about = {} if given is None else given
        if not isinstance(about, dict) or set(about) - {"keys", "jobs"}:
            raise ConfigError(
                f"{name} has keys (a list of names) and jobs (a class name and a list each), nothing else"
            )
        keys, jobs = about.get("keys", list(SECRET_KEYS)), about.get("jobs") or {}
        are_lists = isinstance(jobs, dict) and all(isinstance(names, list) for names in jobs.values())
        if not isinstance(keys, list) or not are_lists:
            raise ConfigError(f"{name}: keys is a list of names, and so is what stands behind each class in jobs")
        return cls([str(key) for key in keys], {str(job): [str(part) for part in parts] for job, parts in jobs.items()})

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
            classes: Further names of the job than those that its payload gives.
        """
        patterns, places = self._rules((*classes, *names_of(payload)))
        if not patterns and not places:
            return dict(payload)
        hidden: dict[str, Any] = {
            key: self._part(key, value, patterns) if key != "args" else value for key, value in payload.items()
        }
        if "args" in hidden:
            hidden["args"] = REDACTED if None in places else self._arguments(hidden["args"], patterns, places)
        return hidden

    def part(self, payload: Mapping[str, Any], key: str) -> Any:
        """What may be shown of what *payload* holds under *key*."""
        patterns, places = self._rules(names_of(payload))
        if key == "args":
            return REDACTED if None in places else self._arguments(payload[key], patterns, places)
        return self._part(key, payload[key], patterns)

    def value(self, value: Any, *classes: str | None) -> Any:
        """What a job of these *classes* returns or holds, without what stands under hidden keys, in texts also."""
        return _printed(value, self._rules(classes)[0])

    def arguments(self, args: Any, *classes: str | None) -> Any:
        """The arguments of a call, a list or a dict by names, without what is hidden in a job of these *classes*."""
        patterns, places = self._rules(classes)
        if not patterns and not places:
            return args
        if None in places:
            return REDACTED
        if not isinstance(args, list | tuple):
            return self._value(args, patterns)
        hidden = self._list(list(args), patterns, places)
        return tuple(hidden) if isinstance(args, tuple) else hidden

    def hides_arguments(self, payload: Mapping[str, Any]) -> bool:
        """Whether arguments of this job are hidden by their place, so that their values may be nowhere."""
        return bool(self._rules(names_of(payload))[1])

    def error(self, error: BaseException, payload: Mapping[str, Any] | None) -> BaseException:
        """
        What may be said of a job's error: *error* itself, or where the policy hides `error_message` in that job one of
        the same name and traceback with `[redacted]` for its text.
        """
        return _without_text(error) if payload and self.hides_errors(payload) else error

    def hides_errors(self, payload: Mapping[str, Any]) -> bool:
        """Whether texts of this job's errors are hidden."""
        return _fits("error_message", self._rules(names_of(payload))[0])

    def mask_text(self, text: str) -> str | None:
        """
        *text* that is no JSON object, with the values behind hidden keys masked as well as they can be found.

        Returns:
            None where the policy has rules for single jobs, which cannot be applied to text that names no job.
        """
        if self._jobs:
            return None
        return _masked(text, self._keys)

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

    def _part(self, key: Any, value: Any, patterns: tuple[str, ...]) -> Any:
        return REDACTED if isinstance(key, str) and _fits(key, patterns) else self._value(value, patterns)

    def _value(self, value: Any, patterns: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._part(key, part, patterns) for key, part in value.items()}
        if isinstance(value, list):
            return [self._value(part, patterns) for part in value]
        return value


def current() -> Redaction:
    """
    The policy of this process: what the program has configured, else the YAML file that `SIDEKIQ_REDACTION` names, else
    `SECRET_KEYS` alone.

    Raises:
        ConfigError: The file cannot be used.
    """
    global _current
    if _current is None:
        _current = _from_environment()
    return _current


def use(policy: Redaction | None) -> None:
    """Make *policy* that of this process; None leaves it to the environment again."""
    global _current
    _current = policy


def names_of(payload: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The names by which a job is known: its class, Active Job's own, the mailer and `Mailer#action`."""
    names = [payload.get("class"), payload.get("wrapped"), payload.get("display_class")]
    args = payload.get("args")
    inner = args[0] if isinstance(args, list) and args else None
    if isinstance(inner, dict) and "job_class" in inner:
        names.append(inner["job_class"])
        own = inner.get("arguments")
        if inner["job_class"] in _MAILERS and isinstance(own, list):
            mailer, action = [*own[:2], None, None][:2]
            if isinstance(mailer, str) and isinstance(action, str):
                names += [mailer, f"{mailer}#{action}"]
    return tuple(name for name in names if isinstance(name, str))


_current: Redaction | None = None


def _from_environment() -> Redaction:
    path = os.environ.get(_VARIABLE)
    if not path:
        return Redaction()
    import yaml

    try:
        given = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{_VARIABLE} names {path}, which cannot be read as YAML: {error}") from error
    return Redaction.of_settings(given, path)


def _printed(value: Any, patterns: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED if isinstance(key, str) and _fits(key, patterns) else _printed(part, patterns)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)([_printed(part, patterns) for part in value]) if type(value) in (list, tuple) else value
    return _masked(value, patterns) if isinstance(value, str) else value


def _masked(text: str, patterns: tuple[str, ...]) -> str:
    """*text* without the values behind keys that fit, as well as they can be found."""
    parts, at = [], 0
    while found := _KEY.search(text, at):
        parts.append(text[at : found.end()])
        at = found.end()
        if _fits(found["key"], patterns):
            parts.append(f"{found['quote']}{REDACTED}{found['quote']}")
            at = _end_of_value(text, at)
    return "".join([*parts, text[at:]])


def _fits(key: str, patterns: tuple[str, ...]) -> bool:
    return _matches(key, patterns) if len(key) > _LONGEST_KEY else _remembered(key, patterns)


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    lower = key.lower()
    return any(fnmatchcase(lower, pattern) for pattern in patterns)


_remembered = lru_cache(maxsize=4096)(_matches)


def _without_text(error: BaseException) -> BaseException:
    """An error that prints as *error* does, at the same lines of code, with `[redacted]` for its text."""
    told: type[BaseException] = type(error)
    named = type(told.__name__, (Exception,), {"__module__": told.__module__, "__qualname__": told.__qualname__})
    standing_in: BaseException = named(REDACTED)
    return standing_in.with_traceback(error.__traceback__)


def _end_of_value(text: str, start: int) -> int:
    """Where the value ends that begins at *start*; rather too late than too early."""
    opening = _QUOTE.match(text, start)
    if opening:
        quote = opening[0]
        closing = re.compile(
            rf"(?<!\\)(?:\\\\)*{re.escape(quote)}" if len(quote) == 1 else rf"(?<!\\){re.escape(quote)}"
        )
        end = closing.search(text, opening.end())
        return end.end() if end else len(text)
    if text.startswith(("[", "{", "("), start):
        # Where a list or an object ends, nobody knows there.
        return len(text)
    scalar = _SCALAR.match(text, start)
    return scalar.end() if scalar else start
