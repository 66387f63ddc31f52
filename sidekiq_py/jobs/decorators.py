"""
Declares jobs: `@job` for functions, `ruby_job` for jobs that are implemented in Ruby; for classes see `job_class`.

The `class` in payloads is `name=`, or by default the module and the qualified name. The options are Sidekiq's and are
written to each payload in the order in which they are declared.
"""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from sidekiq_py import program
from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.jobs import declaration
from sidekiq_py.jobs.handles import DeclaredJob, Handle
from sidekiq_py.jobs.parameters import Parameters
from sidekiq_py.options import OF_JOBS, JobOptions, warn_of_unknown
from sidekiq_py.registry import FunctionDefinition, JobDefinition, Registry, registry

P = ParamSpec("P")
R = TypeVar("R")

_OF_RUBY_JOB = OF_JOBS | {"pool"}

__all__ = ["FunctionJob", "JobDefinition", "Registry", "RubyJob", "job", "registry", "ruby_job"]


class FunctionJob(DeclaredJob[P], Generic[P, R]):
    """A function that is declared as a job. Calling it calls the function."""

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[P, R], definition: FunctionDefinition) -> None:
        # First, because the function may have attributes with the names of ours.
        functools.update_wrapper(self, function)
        super().__init__(definition, Parameters(definition.name, function))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__qualname__


@overload
def job(function: Callable[P, R], /) -> FunctionJob[P, R]: ...


@overload
def job(
    *,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    hard_timeout: float | timedelta | None = None,
    pool: Any = None,
    **options: Unpack[JobOptions],
) -> Callable[[Callable[P, R]], FunctionJob[P, R]]: ...


def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    hard_timeout: float | timedelta | None = None,
    pool: Any = None,
    **options: Any,
) -> Any:
    """
    Declare a function as a job; it may be an `async def`.

    Args:
        name: The `class` in payloads, by which Ruby knows the job; by default `module.function`.
        timeout: Seconds after which `SoftTimeLimitError` is raised in the job.
        hard_timeout: Seconds after which the child process that runs the job is killed; needs one job per child.
        pool: Another Redis to push the job to: anything that `Client(pool=…)` accepts, or a URL.
        options: Sidekiq's options, listed in `JobOptions`: `queue`, `retry` (True, False, a number), `backtrace`,
            `tags`, `dead`, `retry_queue`, `retry_for` and others. Put your own keys, for middleware to read, in
            `custom={"tenant": 5}`. Other unknown options cause a warning and are kept.

    Raises:
        JobDeclarationError: Another job has the name, no other process could find it, or an option is invalid.
    """
    if function is not None:
        return _declare(function, name, timeout, hard_timeout, pool, options)
    return lambda function: _declare(function, name, timeout, hard_timeout, pool, options)


def _declare(
    function: Callable[P, R], name: str | None, timeout: Any, hard_timeout: Any, pool: Any, options: dict[str, Any]
) -> FunctionJob[P, R]:
    if isinstance(function, str):
        raise JobDeclarationError(f"pass the job's name as a keyword: @job(name={function!r})")
    if isinstance(function, type) or not hasattr(function, "__qualname__"):
        raise JobDeclarationError(
            f"{function!r} is not a function; a class inherits from sidekiq_py.Job instead of @job"
        )
    if declaration.is_method(function):
        raise JobDeclarationError(
            f"{function.__qualname__} is a method, and a worker has no object to call it on; declare a function, or "
            "let the class inherit from sidekiq_py.Job"
        )
    own_name = declaration.job_name(name, function.__module__, function.__qualname__)
    checked = declaration.checked_options(options, own_name)
    warn_of_unknown(options, declaration.OF_DECLARATIONS, f"@job of {own_name}")
    definition = FunctionDefinition(
        own_name,
        checked,
        function,
        function,
        origin=declaration.origin(function.__module__, function.__qualname__),
        is_async=declaration.is_async(function, own_name),
        pool=pool,
    )
    limits = declaration.time_limits(timeout, hard_timeout, own_name)
    definition.timeout_seconds, definition.hard_timeout_seconds = limits
    handle = FunctionJob(function, definition)
    definition.job = handle
    registry.add(definition)
    return handle


class RubyJob(Handle[...]):
    """A job that is implemented elsewhere and enqueued from here."""

    def __init__(self, definition: JobDefinition) -> None:
        super().__init__(definition, Parameters(definition.name, None))

    if TYPE_CHECKING:  # what `sidekiq_celery` adds; with `__getattr__`, every misspelled name would have the type Any
        s: Callable[..., Any]
        si: Callable[..., Any]
    else:

        def __getattr__(self, name: str) -> Any:
            """
            An attribute that an extension adds, such as `s` and `si`, which make the job a step in a workflow of
            `sidekiq_celery`.
            """
            find = program.extensions.lookup
            make = None if name.startswith("_") else find(name, lambda extension: extension.ruby_job_attributes)
            return super().__getattr__(name) if make is None else make(self)


def ruby_job(class_name: str, *, pool: Any = None, **options: Unpack[JobOptions]) -> RubyJob:
    """
    A handle for a job that is implemented in Ruby: `ruby_job("Billing::Emailer", queue="mailers").perform_async(42)`.

    Args:
        class_name: The name of the Ruby class.
        pool: Another Redis to push the job to.
        options: The options in the Ruby class's `sidekiq_options`, which cannot be read from here. Put keys that
            Sidekiq does not know in `custom={"tenant": 5}`.

    Raises:
        JobDeclarationError: The name or an option is invalid.
    """
    if not isinstance(class_name, str) or not class_name:
        raise JobDeclarationError(f"ruby_job({class_name!r}): give the name of the Ruby class, such as 'HardWorker'")
    checked = declaration.checked_options(options, class_name)
    warn_of_unknown(options, _OF_RUBY_JOB, f"ruby_job({class_name!r})")
    definition = JobDefinition(class_name, checked, class_name, pool=pool)
    registry.add_elsewhere(class_name)
    return RubyJob(definition)
