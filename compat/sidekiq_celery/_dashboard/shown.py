"""A task's stored result as a dashboard may show it, with the redaction policy applied to all of it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sidekiq_celery._config.censoring import HIDDEN_SETTINGS, MASK, sanitize_url
from sidekiq_celery.stored_results import StoredResult
from sidekiq_py.redaction import REDACTED, Redaction
from sidekiq_py.web.text import TOO_DEEP, json_text, shortened

_LONGEST_IN_A_ROW = 200
_LONGEST = 20_000
_SECRET_NAME = re.compile(f"AUTH|{HIDDEN_SETTINGS.pattern}", re.IGNORECASE)
# In any URL of a text, up to its last @: a password may contain marks that should have been escaped.
_PASSWORD = re.compile(r"(://[^\s:/@]*:)(?:(?!://)\S)*@")
# As in a query, in the settings of a connection, and in the repr of a Python object, which is how workers report one.
_ASSIGNED = re.compile(
    rf"((?:{_SECRET_NAME.pattern})\w{{0,40}}\s?=\s?)(?:'[^']*'|\"[^\"]*\"|[^\s,;&)'\"]+)", re.IGNORECASE
)


class ShownResult:
    """
    A task's result for display. Redaction sees the names that a job's payload would have (`args`, `error_message`,
    `error_backtrace`), plus `result`, so that rules for a class of jobs also apply to its results.

    Args:
        stored: The result as it is stored.
        redaction: The redaction policy.
    """

    def __init__(self, stored: StoredResult, redaction: Redaction) -> None:
        self.stored = stored
        # Results stored without `result_extended` have no task name, and a rule for that task might hide them.
        self.is_hidden = stored.name is None and redaction.mask_text("") is None
        hides_errors = redaction.hides_errors({"class": stored.name})
        about = {
            "args": _as_one(stored.args, stored.kwargs),
            "result": stored.result,
            "error_message": stored.error,
            # Unlike Ruby's backtraces, it ends with the text of the error.
            "error_backtrace": stored.traceback and (REDACTED if hides_errors else stored.traceback),
        }
        self._about = _redacted(about, redaction, stored.name)

    @property
    def has_arguments(self) -> bool:
        """Whether the arguments of the call are stored with the result."""
        return self.stored.args is not None or self.stored.kwargs is not None

    @property
    def arguments(self) -> str:
        """The positional arguments, followed by the keyword arguments as an object."""
        return self._text("args", _LONGEST)

    @property
    def result(self) -> str:
        """The result as JSON; truncated if it is very long."""
        return self._text("result", _LONGEST)

    @property
    def error(self) -> str:
        """The error's class and message."""
        return self._text("error_message", _LONGEST)

    @property
    def traceback(self) -> str:
        """The traceback as text."""
        return self._text("error_backtrace", 10 * _LONGEST)

    @property
    def summary(self) -> str:
        """The result or error, for a table row."""
        if self.stored.trouble:
            return shortened(self.stored.trouble, _LONGEST_IN_A_ROW)
        return shortened(self.error or self.result, _LONGEST_IN_A_ROW)

    def _text(self, name: str, most: int) -> str:
        if self.is_hidden:
            return REDACTED
        value = self._about[name]
        return shortened(value if isinstance(value, str) and name != "result" else json_text(value), most)


def call_text(names: Iterable[str], args: Any, kwargs: Any, redaction: Redaction) -> str:
    """The arguments of a call that a worker has reported, in one line. Rules for any of its *names* apply."""
    about = _redacted({"args": _as_one(args, kwargs)}, redaction, *names)
    return shortened(json_text(about["args"]), _LONGEST_IN_A_ROW)


def settings_shown(settings: Mapping[str, Any], redaction: Redaction) -> list[tuple[str, str]]:
    """
    A worker's settings by name, each in one line, without secrets. Our workers and Celery's mask those whose name says
    what they are. Here the dashboard's policy applies, too, and secrets are masked at any depth and within texts.
    """
    try:
        shown = _without_secrets(redaction.value(dict(settings)))
    except RecursionError:
        shown = dict.fromkeys(settings, TOO_DEEP)
    return [(name, shortened(json_text(value), _LONGEST_IN_A_ROW)) for name, value in sorted(shown.items())]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_masked(key): MASK if _is_secret(key, part) else _without_secrets(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    return _masked(value) if isinstance(value, str) else value


def _is_secret(name: str, value: Any) -> bool:
    """As in Celery, the name of a mapping does not hide it: in `task_routes`, names of tasks are keys."""
    return value != REDACTED and not isinstance(value, Mapping) and bool(_SECRET_NAME.search(name))


def _masked(text: str) -> str:
    if "://" in text:
        text = sanitize_url(_PASSWORD.sub(rf"\g<1>{MASK}@", text))
    return _ASSIGNED.sub(rf"\g<1>{MASK}", text)


def _redacted(about: Mapping[str, Any], redaction: Redaction, *names: str | None) -> Mapping[str, Any]:
    """*about* without hidden values. Celery's JSON may be nested too deeply to look for them: then all is hidden."""
    try:
        return redaction.apply(about, *names)
    except RecursionError:
        return dict.fromkeys(about, TOO_DEEP)


def _as_one(args: Any, kwargs: Any) -> Any:
    """The arguments in the order of a job's `args`, so that a policy for argument positions means the same ones."""
    positional = list(args) if isinstance(args, list | tuple) else [] if args is None else [args]
    return [*positional, dict(kwargs)] if isinstance(kwargs, Mapping) and kwargs else positional
