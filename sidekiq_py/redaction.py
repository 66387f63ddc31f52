"""
Which values of jobs are hidden from people: one policy for pages, logs, command-line JSON and reports.

    sidekiq.configure(redaction=Redaction(jobs={"UserMailer*": ["email", "args[0]"], "Payments::*": ["args"]}))

The policy hides values, never jobs: a hidden value is shown as `[redacted]`. Nothing in Redis changes. `current()` is
this process's policy, and every output applies it: logs, the command line, the dashboard, Sentry and traces.
"""

import os
import re
import threading
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
    "*api?key*",
    "*apikey*",
    "*authorization*",
    "*credential*",
    "*private?key*",
    "*cookie*",
)
"""The keys that are hidden in every job unless the policy says otherwise."""

ARGUMENT_COPIES = ("lock_args", "unique_args")
"""The keys under which sidekiq-unique-jobs writes the arguments once more, or what a method of the program picks."""

_PLACE = re.compile(r"args\[(\d{1,6})\]")
# A key in text that is not JSON as a whole, or in the repr of a Python dict. In JSON inside a JSON string, each quote
# is escaped with backslashes.
_KEY = re.compile(r"""(?P<quote>\\{0,8}["'])(?P<key>[^"'\\]{1,200})(?P=quote)\s{0,100}:\s{0,100}""")
# In the repr of bytes, a letter precedes the quote.
_OPENING = re.compile(r"""[a-zA-Z]{0,2}(?P<quote>\\{0,8}["'])""")
_SCALAR = re.compile(r"[^\s,}\]]*")
_BRACKETS = frozenset("[{(<")
# Longer keys are not cached, because the cache could then grow to any size.
_LONGEST_KEY = 100
_VARIABLE = "SIDEKIQ_REDACTION"
# Since Rails 6.0, the arguments of the action are in a hash, beside `params`.
_MAIL_WITH_HASH = "ActionMailer::MailDeliveryJob"
_MAILERS = ("ActionMailer::DeliveryJob", _MAIL_WITH_HASH)
_BEFORE_MAIL = 3
# Under this key, a task of `sidekiq_celery` may have its arguments once more: as text, or as base64, in which no hidden
# value can be found.
_CELERY = "celery"
_PRINTED = ("argsrepr", "kwargsrepr")
_ENCODED = ("body", "message")


class Redaction:
    """
    A redaction policy. Safe to share between threads.

    Args:
        keys: Globs of key names to hide in every job, at any depth. Case is ignored.
        jobs: Maps a glob of class names to what is hidden in those jobs: globs of key names, `args[0]` for the first
            argument, or `args` for all arguments. For Active Job, use the job's own class and arguments, not the
            wrapper's; for a mail, the mailer and the arguments of its method.

    Raises:
        ConfigError: A rule would hide nothing: a text in place of a list, a position that is not a number, or one in
            *keys*.
    """

    def __init__(self, keys: Iterable[str] = SECRET_KEYS, jobs: Mapping[str, Iterable[str]] | None = None) -> None:
        if jobs is not None and not isinstance(jobs, Mapping):
            raise ConfigError(f"jobs is {jobs!r}; map each class to what is hidden: {{'UserMailer*': ['email']}}")
        self._keys = tuple(key.lower() for key in _listed(keys, "keys"))
        if places := [key for key in self._keys if _PLACE.fullmatch(key)]:
            raise ConfigError(f"keys has {places[0]!r}, which is no name of a key; give jobs={{'*': {places!r}}}")
        self._jobs = {pattern: _listed(names, f"jobs[{pattern!r}]") for pattern, names in (jobs or {}).items()}

    @classmethod
    def none(cls) -> Self:
        """A policy that hides nothing."""
        return cls(keys=())

    @classmethod
    def of_settings(cls, given: Any, name: str) -> Self:
        """
        The policy from a file: a mapping with `keys`, `jobs` or both.

        Args:
            name: Where the mapping is from, for error messages.

        Raises:
            ConfigError: The mapping is invalid.
        """
        about = {} if given is None else given
        if not isinstance(about, dict) or set(about) - {"keys", "jobs"}:
            raise ConfigError(f"{name} may only have keys (a list of names) and jobs (a list of names for each class)")
        keys, jobs = about.get("keys", list(SECRET_KEYS)), about.get("jobs") or {}
        are_lists = isinstance(jobs, dict) and all(isinstance(names, list) for names in jobs.values())
        if not isinstance(keys, list) or not are_lists:
            raise ConfigError(f"{name}: keys must be a list of names, and so must the value of each class in jobs")
        try:
            return cls(
                [str(key) for key in keys], {str(job): [str(part) for part in parts] for job, parts in jobs.items()}
            )
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error

    def __repr__(self) -> str:
        return f"<Redaction keys={len(self._keys)} jobs={len(self._jobs)}>"

    @property
    def is_empty(self) -> bool:
        """True if the policy hides nothing."""
        return not self._keys and not self._jobs

    def apply(self, payload: Mapping[str, Any], *classes: str | None) -> dict[str, Any]:
        """
        A copy of *payload* with each hidden value replaced by `[redacted]`.

        Args:
            payload: The parsed payload.
            classes: Names of the job beyond those in its payload.
        """
        patterns, places = self._rules((*classes, *names_of(payload)))
        if not patterns and not places:
            return dict(payload)
        hidden: dict[str, Any] = {
            key: self._part(key, value, patterns) if key != "args" else value for key, value in payload.items()
        }
        if "args" in hidden:
            hidden["args"] = REDACTED if None in places else self._arguments(hidden["args"], patterns, places)
        hidden |= {key: REDACTED for key in ARGUMENT_COPIES if places and key in hidden}
        task = hidden.get(_CELERY)
        if isinstance(task, dict):
            task |= {key: REDACTED for key in _ENCODED if key in task}
            task |= {key: REDACTED for key in _PRINTED if places and key in task}
        return hidden

    def part(self, payload: Mapping[str, Any], key: str) -> Any:
        """The value of *key* in *payload*, redacted."""
        patterns, places = self._rules(names_of(payload))
        if key == "args":
            return REDACTED if None in places else self._arguments(payload[key], patterns, places)
        if places and key in ARGUMENT_COPIES:
            return REDACTED
        return self._part(key, payload[key], patterns)

    def value(self, value: Any, *classes: str | None) -> Any:
        """A value of a job of these *classes*, with hidden keys redacted, also inside strings."""
        return self._value(value, self._rules(classes)[0])

    def arguments(self, args: Any, *classes: str | None) -> Any:
        """The arguments of a call (a list, or a dict by name), redacted as for a job of these *classes*."""
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
        """True if arguments of this job are hidden by position, so their values must not be shown anywhere."""
        return bool(self._rules(names_of(payload))[1])

    def error(self, error: BaseException, payload: Mapping[str, Any] | None) -> BaseException:
        """
        A job's error as it may be shown: *error* itself, or, if the policy hides `error_message` in that job, an error
        with the same name and traceback and the text `[redacted]`.
        """
        return _without_text(error) if payload and self.hides_errors(payload) else error

    def hides_errors(self, payload: Mapping[str, Any]) -> bool:
        """True if the messages of this job's errors are hidden."""
        return _fits("error_message", self._rules(names_of(payload))[0])

    def mask_text(self, text: str) -> str | None:
        """
        Mask the values of hidden keys in *text* that is not a JSON object, on a best-effort basis.

        Returns:
            None if the policy has rules for certain jobs: they cannot be applied to text that names no job.
        """
        if self._jobs:
            return None
        return _masked(text, self._keys)

    def _rules(
        self, classes: Iterable[str | None], keys: Iterable[str] | None = None
    ) -> tuple[tuple[str, ...], frozenset[int | None]]:
        """The globs of hidden keys, and the positions of hidden arguments; the position None means all arguments."""
        names: list[str] = []
        for pattern, hidden in self._jobs.items():
            if any(name is not None and fnmatchcase(name, pattern) for name in classes):
                names += hidden
        places: set[int | None] = set()
        patterns = list(self._keys if keys is None else keys)
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
            # The arguments of an Active Job are one level deeper.
            inner = {key: self._part(key, value, patterns) for key, value in args[0].items() if key != "arguments"}
            if "arguments" in args[0]:
                inner["arguments"] = self._inner_arguments(args[0]["job_class"], args[0]["arguments"], patterns, places)
            return [inner]
        return self._list(args, patterns, places)

    def _inner_arguments(
        self, job_class: Any, values: Any, patterns: tuple[str, ...], places: frozenset[int | None]
    ) -> Any:
        if job_class not in _MAILERS or not isinstance(values, list):
            return self._list(values, patterns, places)
        # Mailer, action and `deliver_now` precede the arguments of the action, by which a mail is known.
        before, own = values[:_BEFORE_MAIL], values[_BEFORE_MAIL:]
        shown = [self._value(value, patterns) for value in before]
        if job_class != _MAIL_WITH_HASH or len(own) != 1 or not isinstance(own[0], dict):
            return [*shown, *self._list(own, patterns, places)]
        hidden = {key: self._part(key, value, patterns) for key, value in own[0].items()}
        if hidden.get("args", REDACTED) != REDACTED:
            hidden["args"] = self._list(own[0]["args"], patterns, places)
        return [*shown, hidden]

    def _list(self, values: Any, patterns: tuple[str, ...], places: frozenset[int | None]) -> Any:
        if not isinstance(values, list):
            # Without positions, all of it may be what is to be hidden.
            return REDACTED if places else self._value(values, patterns)
        return [REDACTED if at in places else self._value(value, patterns) for at, value in enumerate(values)]

    def _part(self, key: Any, value: Any, patterns: tuple[str, ...]) -> Any:
        return REDACTED if isinstance(key, str) and _fits(key, patterns) else self._value(value, patterns)

    def _value(self, value: Any, patterns: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            hidden: dict[str, Any] = {}
            if self._jobs and "args" in value and isinstance(value.get("task"), str):
                # A Celery signature. What precedes it may add arguments in front, so none is known by its position.
                patterns, places = self._rules((value["task"],), patterns)
                hidden = {key: REDACTED for key in ("args", "kwargs") if places and key in value}
            return {key: self._part(key, part, patterns) for key, part in value.items()} | hidden
        if isinstance(value, list) or type(value) is tuple:
            parts = [self._value(part, patterns) for part in value]
            return parts if isinstance(value, list) else tuple(parts)
        return _masked(value, patterns) if isinstance(value, str) else value


def current() -> Redaction:
    """
    This process's policy: the one that the program configured, or else the YAML file that `SIDEKIQ_REDACTION` names, or
    else `SECRET_KEYS` alone.

    Raises:
        ConfigError: The file is unusable.
    """
    global _current
    policy = _current
    if policy is None:
        found = _from_environment()
        with _changing:
            # Reading a file takes milliseconds, in which another thread may have set the program's policy.
            policy = _current = _current or found
    return policy


def use(policy: Redaction | None) -> None:
    """Set this process's policy; None goes back to that of the environment."""
    global _current
    with _changing:
        _current = policy


def names_of(payload: Mapping[str, Any]) -> tuple[str | None, ...]:
    """All names of a job: its class, the Active Job's own class, the mailer and `Mailer#action`."""
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


def _listed(names: Iterable[str], where: str) -> tuple[str, ...]:
    # A text is an iterable of its letters, which would hide nothing that anybody meant.
    if isinstance(names, str):
        raise ConfigError(f"{where} is {names!r}; give a list: [{names!r}]")
    given = tuple(names)
    for name in given:
        if name.startswith("args[") and not _PLACE.fullmatch(name):
            raise ConfigError(f"{where} has {name!r}; write args[0] for the first argument, args[1] for the second")
    return given


_current: Redaction | None = None
_changing = threading.Lock()


def _from_environment() -> Redaction:
    path = os.environ.get(_VARIABLE)
    if not path:
        return Redaction()
    import yaml

    try:
        given = yaml.safe_load(Path(path).read_text("utf-8"))
    # PyYAML raises the last three for a value that does not fit its tag, such as `!!int x`.
    except (OSError, yaml.YAMLError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{_VARIABLE} names {path}, which cannot be read as YAML: {error}") from error
    return Redaction.of_settings(given, path)


def _masked(text: str, patterns: tuple[str, ...]) -> str:
    """*text* without the values of matching keys, on a best-effort basis."""
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
    """A copy of *error* that prints with the same name and traceback, and with the text `[redacted]`."""
    kind: type[BaseException] = type(error)
    named = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    standing_in: BaseException = named(REDACTED)
    return standing_in.with_traceback(error.__traceback__)


def _end_of_value(text: str, start: int) -> int:
    """The end of the value that begins at *start*. If in doubt, it returns a later position rather than an earlier."""
    opening = _OPENING.match(text, start)
    if opening:
        quote = opening["quote"]
        closing = re.compile(
            rf"(?<!\\)(?:\\\\)*{re.escape(quote)}" if len(quote) == 1 else rf"(?<!\\){re.escape(quote)}"
        )
        end = closing.search(text, opening.end())
        return end.end() if end else len(text)
    scalar = _SCALAR.match(text, start)
    if scalar is None or not _BRACKETS.isdisjoint(scalar[0]):
        # The end of a list, an object or a call such as `datetime.date(2026, 2, 14)` cannot be determined here.
        return len(text)
    return scalar.end()
