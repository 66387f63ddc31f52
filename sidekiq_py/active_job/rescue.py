"""
`retry_on` and `discard_on`: how an Active Job handles its own errors, before Sidekiq's retries see them.

Source: Rails 6.1 to 8.1, activejob/exceptions.rb.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sidekiq_py.errors import JobDeclarationError, JobFailed, Stopped

Errors = type[Exception] | tuple[type[Exception], ...]
Wait = float | timedelta | Literal["polynomially_longer"] | Callable[..., float | timedelta]

DEFAULT_WAIT_SECONDS = 3
DEFAULT_ATTEMPTS = 5
DEFAULT_JITTER = 0.15  # Rails' `load_defaults` since 6.1

_POLYNOMIAL = ("polynomially_longer", "exponentially_longer")  # the second is the name before 7.1
# These say themselves how the job ends.
_NO_ACCIDENTS = (JobFailed, Stopped)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """
    Enqueue the job again when it raises one of these errors.

    Args:
        errors: The error classes, counted together.
        wait: Seconds, a timedelta, "polynomially_longer" (about 3 s, 18 s, 83 s, …), or a function of the number of
            executions (and of the error, if it takes two arguments).
        attempts: The total number of executions; None for no limit.
        queue, priority: For the next attempt; None keeps the current ones.
        jitter: Up to this share of the delay is added at random.
        exhausted: Called with the job object and the error after the last attempt. Without it the error is raised, and
            Sidekiq's retries begin.
    """

    errors: tuple[type[Exception], ...]
    wait: Wait = DEFAULT_WAIT_SECONDS
    attempts: int | None = DEFAULT_ATTEMPTS
    queue: str | None = None
    priority: int | None = None
    jitter: float = DEFAULT_JITTER
    exhausted: Callable[[dict[str, Any], Exception], Any] | None = None

    @property
    def key(self) -> str:
        """The key in `exception_executions` under which it counts: Ruby's text for a list of classes."""
        return f"[{', '.join(error.__name__ for error in self.errors)}]"

    def delay_seconds(self, executions: int, error: Exception, draw: float) -> float:
        """
        How many seconds to wait before the next attempt.

        Args:
            executions: How many runs these errors have ended, including this one.
            draw: A random number from [0, 1).
        """
        if callable(self.wait):
            takes_error = len(inspect.signature(self.wait).parameters) > 1
            return _seconds(self.wait(executions, error) if takes_error else self.wait(executions))
        if self.wait in _POLYNOMIAL:
            delay = float(executions**4)
            return delay + draw * delay * self.jitter + 2
        delay = _seconds(self.wait)
        return delay + draw * delay * self.jitter


@dataclass(frozen=True, slots=True)
class DiscardRule:
    """Drop the job, without an entry in the retry set, when it raises one of these errors."""

    errors: tuple[type[Exception], ...]


Rule = RetryRule | DiscardRule


def rules_of(retry_on: Mapping[Errors, Mapping[str, Any]] | None, discard_on: Errors) -> tuple[Rule, ...]:
    """
    Build the rules of a declaration.

    Args:
        retry_on: `{ValueError: {"wait": 3, "attempts": 5}, (KeyError, OSError): {}}`.
        discard_on: One error class, or a tuple of them.

    Raises:
        JobDeclarationError: An option is unknown or invalid.
    """
    if retry_on is not None and not isinstance(retry_on, Mapping):
        raise JobDeclarationError(
            f"retry_on is {retry_on!r}; give the options of each error class: {{ConnectionError: {{'attempts': 5}}}}"
        )
    retries = [_retry_rule(errors, options) for errors, options in (retry_on or {}).items()]
    discards = tuple(discard_on) if isinstance(discard_on, tuple | list | set | frozenset) else (discard_on,)
    return (*retries, *([DiscardRule(_classes(discards))] if discards else []))


def find_rule(rules: Iterable[Rule], error: BaseException) -> tuple[Rule, Exception] | None:
    """
    Find the rule for *error* or for one of its causes (`raise … from …`), and the error that it applies to.

    If several match, the rule that names the nearest class wins. Ruby takes the one declared last, but here the two
    kinds of rules are declared separately.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    while isinstance(cause, Exception) and id(cause) not in seen:
        seen.add(id(cause))
        fitting = [rule for rule in rules if isinstance(cause, rule.errors)]
        if fitting:
            lineage = type(cause).__mro__
            return min(reversed(fitting), key=lambda rule: min(_distance(lineage, e) for e in rule.errors)), cause
        cause = cause.__cause__
    return None


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The decision about an error.

    Args:
        rule: The rule that applies.
        cause: The error that it applies to: the one raised, or one of its causes.
        count: How many runs of this job the rule's errors have ended, including this one.
    """

    rule: Rule
    cause: Exception
    count: int = 0

    @property
    def is_retry(self) -> bool:
        """True if the job should be enqueued again."""
        return isinstance(self.rule, RetryRule) and (self.rule.attempts is None or self.count < self.rule.attempts)

    @property
    def is_raised(self) -> bool:
        """True if all attempts are used up and the error should go to Sidekiq's retries."""
        return isinstance(self.rule, RetryRule) and self.rule.exhausted is None and not self.is_retry


def decide(rules: Iterable[Rule], error: Exception, job: dict[str, Any]) -> Decision | None:
    """
    Decide what to do about *error*; None if no rule applies.

    Args:
        job: The job object of this run. A retry rule counts in its `exception_executions`.
    """
    # Rules for all errors, which base classes have, are not meant for these.
    found = None if isinstance(error, _NO_ACCIDENTS) else find_rule(rules, error)
    if found is None:
        return None
    rule, cause = found
    return Decision(rule, cause, _count(rule, job) if isinstance(rule, RetryRule) else 0)


def _count(rule: RetryRule, job: dict[str, Any]) -> int:
    counts = job.get("exception_executions")
    if counts is None:  # enqueued by a program that does not write these counts
        return int(job["executions"])
    counts[rule.key] = (counts.get(rule.key) or 0) + 1
    return int(counts[rule.key])


def _distance(lineage: tuple[type, ...], error: type) -> int:
    return lineage.index(error) if error in lineage else len(lineage)


def _retry_rule(errors: Any, options: Mapping[str, Any]) -> RetryRule:
    settings = dict(options)
    if settings.get("attempts") == "unlimited":
        settings["attempts"] = None
    try:
        rule = RetryRule(_classes(errors if isinstance(errors, tuple) else (errors,)), **settings)
    except TypeError:
        known = ", ".join(name for name in RetryRule.__slots__ if name != "errors")
        raise JobDeclarationError(f"retry_on has the options {options!r}; the known ones are {known}") from None
    if not callable(rule.wait) and rule.wait not in _POLYNOMIAL and not isinstance(rule.wait, (int, float, timedelta)):
        raise JobDeclarationError(
            f"retry_on waits {rule.wait!r}; give seconds, a timedelta, 'polynomially_longer' or a function"
        )
    return rule


def _classes(errors: tuple[Any, ...]) -> tuple[type[Exception], ...]:
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise JobDeclarationError(
                f"{error!r} is not an error class; retry_on and discard_on take subclasses of Exception"
            )
        if issubclass(error, _NO_ACCIDENTS):
            raise JobDeclarationError(
                f"{error.__name__} ends a job without a retry, whatever its rules say; leave it out of retry_on and "
                "discard_on"
            )
    return errors


def _seconds(wait: Any) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
