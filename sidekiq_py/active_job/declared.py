"""
Declares Active Jobs that run here: `@active_job("Billing::InvoiceJob")`.

Both names of the adapter's wrapper class are added to the job registry. The implementation for a payload is looked up
among the declared Active Jobs; nothing is imported because a payload names it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from sidekiq_py.active_job.enqueue import Options, aperform_later, declared_options, perform_later
from sidekiq_py.active_job.execution import Execution, job_object_of
from sidekiq_py.active_job.rescue import Errors, Rule, rules_of
from sidekiq_py.active_job.values import Keywords
from sidekiq_py.errors import JobDeclarationError, JobNotFoundError
from sidekiq_py.jobs import declaration
from sidekiq_py.jobs.handles import DecidesRetries
from sidekiq_py.options import checked_value
from sidekiq_py.registry import JobDefinition, Payload, registry
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER

P = ParamSpec("P")
R = TypeVar("R")

_implementations: dict[str, "ImplementedJob"] = {}


class ActiveJob(DecidesRetries, Generic[P, R]):
    """
    The result of `@active_job`: calling it calls the function, and its methods enqueue the job as Rails would.

    `retry_in` and `retries_exhausted` are about Sidekiq's retries, which follow those of `retry_on`.

    Attributes:
        job_class: The Ruby class that it implements.
        definition: The definition that workers run.
    """

    definition: "ImplementedJob"

    def __init__(self, definition: "ImplementedJob", function: Callable[P, R], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.definition = definition
        self.job_class = definition.name
        self._function = function
        self._options = dict(options)

    def __repr__(self) -> str:
        return f"<ActiveJob {self.job_class}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly."""
        return self._function(*args, **kwargs)

    def set(self, **options: Any) -> "ActiveJob[P, R]":
        """The same job with other `Options`: `report.set(wait=60).perform_later(1)`."""
        Options().merged(options)
        return ActiveJob(self.definition, self._function, {**self._options, **options})

    def perform_later(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Enqueue it; keyword arguments become Ruby's. Returns and raises as `perform_later` does."""
        return perform_later(self.job_class, *_with_keywords(args, kwargs), **self._options)

    async def aperform_later(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """`perform_later`, awaited."""
        return await aperform_later(self.job_class, *_with_keywords(args, kwargs), **self._options)


class ImplementedJob(JobDefinition):
    """An Active Job and its implementation."""

    __slots__ = ("function", "rails_version", "rules")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        sidekiq_options: dict[str, Any],
        rules: tuple[Rule, ...],
        rails_version: str | None,
    ) -> None:
        origin = declaration.origin(function.__module__, function.__qualname__)
        super().__init__(name, sidekiq_options, None, origin=origin, is_async=declaration.is_async(function, name))
        self.function = function
        self.rules = rules
        self.rails_version = rails_version

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """A callable that runs this payload."""
        execution = Execution(self.function, payload, self.rules, self.options, self.rails_version)
        return execution.acall if self.is_async else execution


class WrapperJob(JobDefinition):
    """The class under which all Active Jobs are pushed; the job object in the payload names the actual one."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, {}, name, origin=__name__)
        self.resolve = implementation_of
        # A worker starts an event loop if any declared job is an `async def`.
        self.is_async = any(implemented.is_async for implemented in _implementations.values())

    def classes(self) -> Iterable[str]:
        """The declared Active Jobs."""
        return tuple(_implementations)

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """A callable that runs this payload with its implementation."""
        found = implementation_of(payload)
        if found is None:
            raise JobNotFoundError(str(payload.get("wrapped") or payload.get("class")), is_active_job=True)
        return found.bind(payload, stopping)


def implementation_of(payload: Mapping[str, Any]) -> ImplementedJob | None:
    """The declared Active Job for *payload*; None if it is not declared here."""
    job = job_object_of(payload)
    return None if job is None else _implementations.get(job["job_class"])


def active_job(
    job_class: str,
    *,
    queue: str | None = None,
    priority: int | None = None,
    retry_on: Mapping[Errors, Mapping[str, Any]] | None = None,
    discard_on: Errors = (),
    sidekiq_options: Mapping[str, Any] | None = None,
    rails_version: str | None = None,
    timeout: float | timedelta | None = None,
) -> Callable[[Callable[P, R]], ActiveJob[P, R]]:
    """
    Run jobs that Rails enqueues as *job_class* here; the function receives the arguments as Python values.

        @active_job("Billing::InvoiceJob", retry_on={ConnectionError: {"wait": 3, "attempts": 5}}, discard_on=KeyError)
        def invoice(number, *, format="pdf"): ...

    Args:
        queue, priority: For jobs that are enqueued from here with `perform_later`.
        retry_on: Maps errors to the options of a `RetryRule`: the job is enqueued again under a new jid, with its
            counts. If several rules match, the one for the nearest class wins.
        discard_on: Errors that end the job quietly.
        sidekiq_options: For jobs that are enqueued from here, such as {"retry": 5}.
        rails_version: The Rails release at the other end, such as "7.1"; by default derived from the Sidekiq release
            there.
        timeout: Seconds, or a timedelta, after which `SoftTimeLimitError` is raised in it.

    Raises:
        JobDeclarationError: Another function is declared for the class, or an option is invalid.
    """
    if not isinstance(job_class, str) or not job_class:
        raise JobDeclarationError(f"@active_job({job_class!r}): give the Ruby class's name, as 'Billing::InvoiceJob'")
    if queue is not None:
        checked_value("queue", queue, job_class)
    checked = declaration.checked_options(sidekiq_options or {}, job_class)
    limit = declaration.limit_seconds("timeout", timeout, job_class)

    def declare(function: Callable[P, R]) -> ActiveJob[P, R]:
        if isinstance(function, type) or not hasattr(function, "__qualname__") or declaration.is_method(function):
            raise JobDeclarationError(
                f"{job_class}: {function!r} is a method or no function; put @active_job above a function that takes "
                "the job's arguments"
            )
        rules = rules_of(retry_on, discard_on)
        definition = ImplementedJob(job_class, function, dict(checked), rules, rails_version)
        definition.timeout_seconds = limit
        handle = ActiveJob(definition, function, {})
        definition.job = handle
        _enter(definition)
        declared_options[job_class] = Options(
            queue=queue, priority=priority, sidekiq_options=checked, rails_version=rails_version
        )
        return handle

    return declare


def forget_active_jobs() -> None:
    """Forget all declared Active Jobs."""
    _implementations.clear()
    declared_options.clear()
    for name in (OLD_WRAPPER, NEW_WRAPPER):
        registry.remove(name)


def _enter(definition: ImplementedJob) -> None:
    present = _implementations.get(definition.name)
    if present is not None and present.origin != definition.origin:
        raise JobDeclarationError(
            f"the Active Job {definition.name!r} is implemented by {present.origin} and again by {definition.origin}; "
            "a class has one implementation"
        )
    _implementations[definition.name] = definition
    for name in (OLD_WRAPPER, NEW_WRAPPER):
        registry.add(WrapperJob(name))


def _with_keywords(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*args, Keywords(kwargs)) if kwargs else args
