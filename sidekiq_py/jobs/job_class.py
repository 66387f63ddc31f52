"""
The class form of a job, as in Ruby:

    class HardWorker(Job):
        sidekiq_options = {"queue": "critical", "retry": 5}

        def perform(self, name, count): ...

    HardWorker.perform_async("bob", 5)

Each run has its own instance. `async def perform` works, too.
"""

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack

from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.jobs import declaration
from sidekiq_py.jobs.handles import DeclaredJob, Interval, Moment
from sidekiq_py.jobs.parameters import Parameters
from sidekiq_py.options import JobOptions, warn_of_unknown, with_custom
from sidekiq_py.registry import JobDefinition, Payload, never_stopping, registry

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _ClassOptions(JobOptions, total=False):
    """The options after the base class: `class HardWorker(Job, queue="low", timeout=60)`."""

    timeout: float | timedelta | None
    hard_timeout: float | timedelta | None
    pool: Any


class ClassDefinition(JobDefinition):
    """A job that is a class."""

    __slots__ = ()

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """The `perform` method of a new instance."""
        instance: Job = self.job()
        instance.jid = payload.get("jid")
        instance.payload = payload
        instance._stopping = stopping
        if hasattr(instance, "bid"):
            instance.bid = payload.get("bid")
        return instance._bound()

    def subject(self, bound: Callable[..., Any]) -> Any:
        """The instance."""
        return getattr(bound, "__self__", self.job)


class _HasPerform(Protocol[P]):
    def perform(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class _NoJobError(JobDeclarationError, AttributeError):
    """A class without `perform` was to be enqueued. `help`, `hasattr` and Sphinx expect an `AttributeError`."""


class _OfHandle:
    """A handle's method as a class method of the job class."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def _find(self, owner: Any) -> Any:
        return getattr(_handle_of(owner), self._name)


class _ClassHandle(DeclaredJob[P]):
    """The handle of a job class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _handle_of, (self.definition.job,)


# Descriptors with the parameters of `perform`, or of the handle's method, so that type checkers find wrong arguments.


class _SameMethod(_OfHandle, Generic[P, R]):
    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        """Types it as *method*, which it finds by its own name."""

    def __get__(self, instance: object, owner: type) -> Callable[P, R]:
        return self._find(owner)  # type: ignore[no-any-return]


class _Method(_OfHandle, Generic[R]):
    def __get__(self, instance: object, owner: type[_HasPerform[P]]) -> Callable[P, R]:
        return self._find(owner)  # type: ignore[no-any-return]


class _MethodWithTime(_OfHandle, Generic[T, R]):
    def __get__(self, instance: object, owner: type[_HasPerform[P]]) -> Callable[Concatenate[T, P], R]:
        return self._find(owner)  # type: ignore[no-any-return]


class Job:
    """
    A job that is a class. Define `perform`.

    Defining a subclass declares the job. `class HardWorker(Job, name="HardWorker")` sets its name for Ruby; by default
    it is `module.HardWorker`. `sidekiq_options` are inherited, as in Ruby. In addition to Sidekiq's options they accept
    `name`, `timeout`, `hard_timeout` and `pool`, like `@job`.

    Attributes:
        jid: The id of the running job.
        payload: The payload of the running job, as middleware sees it.
    """

    sidekiq_options: ClassVar[Mapping[str, Any]] = {}

    _is_iterable: ClassVar[bool] = False
    jid: str | None = None
    payload: Payload = {}
    _stopping: Callable[[], bool] = staticmethod(never_stopping)

    set = _SameMethod(DeclaredJob[...].set)
    retry_in = _SameMethod(DeclaredJob[...].retry_in)
    retries_exhausted = _SameMethod(DeclaredJob[...].retries_exhausted)
    perform_bulk = _SameMethod(DeclaredJob[...].perform_bulk)
    aperform_bulk = _SameMethod(DeclaredJob[...].aperform_bulk)
    perform_async = _Method[str | None]()
    perform_in = _MethodWithTime[Interval, str | None]()
    perform_at = _MethodWithTime[Moment, str | None]()
    perform_inline = _Method[bool | None]()
    aperform_async = _Method[Coroutine[Any, Any, str | None]]()
    aperform_in = _MethodWithTime[Interval, Coroutine[Any, Any, str | None]]()
    aperform_at = _MethodWithTime[Moment, Coroutine[Any, Any, str | None]]()
    aperform_inline = _Method[Coroutine[Any, Any, bool | None]]()

    def __init_subclass__(cls, *, name: str | None = None, **options: Unpack[_ClassOptions]) -> None:
        super().__init_subclass__()
        warn_of_unknown(options, declaration.OF_DECLARATIONS, f"class {cls.__qualname__}")
        # Subclasses inherit these options even if this is only a base class, without a job of its own.
        cls.__sidekiq_keywords__ = with_custom(options)  # type: ignore[attr-defined]
        entry = cls._entry_point()
        if entry is not None:
            _declare(cls, name, entry)

    def interrupted(self) -> bool:
        """True if the process is about to stop. A long job should then finish, or stop where it can resume."""
        return self._stopping()

    @classmethod
    def _entry_point(cls) -> tuple[Callable[..., Any], int] | None:
        """
        The function that the arguments of a push must fit, and how many of its first parameters the caller does not
        pass. None if the class is not a complete job.
        """
        perform = getattr(cls, "perform", None)
        if perform is None:
            return None
        defined = next(vars(one)["perform"] for one in cls.__mro__ if "perform" in vars(one))
        return perform, 0 if isinstance(defined, (staticmethod, classmethod)) else 1

    def _bound(self) -> Callable[..., Any]:
        """The method that a run calls."""
        return self.perform  # type: ignore[attr-defined,no-any-return]


def unfinished() -> list[str]:
    """
    Module and name of each class that inherits from `Job` but is not a job, because it does not define what to do.

    A class that has subclasses is not listed: it is meant as a base class.
    """
    return [
        f"{cls.__module__}.{cls.__qualname__}"
        for cls in _leaves(Job)
        if cls.__module__.partition(".")[0] != "sidekiq_py" and "__sidekiq_handle__" not in cls.__dict__
    ]


def _leaves(cls: type[Job]) -> list[type[Job]]:
    below = cls.__subclasses__()
    return [leaf for child in below for leaf in _leaves(child)] if below else [cls]


def _handle_of(cls: type[Job]) -> DeclaredJob[...]:
    handle: DeclaredJob[...] | None = cls.__dict__.get("__sidekiq_handle__")
    if handle is None:
        missing = "`each_iteration` or no `build_enumerator`" if cls._is_iterable else "`perform`"
        raise _NoJobError(f"{cls.__qualname__} defines no {missing}, so there is no job to enqueue")
    return handle


def _own_options(cls: type) -> dict[str, Any]:
    """What a class itself states, whether it has a job or is only a base class."""
    keywords: Mapping[str, Any] = cls.__dict__.get("__sidekiq_keywords__", {})
    return {**with_custom(cls.__dict__.get("sidekiq_options", {})), **keywords}


def _declare(cls: type[Job], name: str | None, entry: tuple[Callable[..., Any], int]) -> None:
    stated = cls.__dict__.get("sidekiq_options", {})
    # A program's own keys are common there, as in Ruby, and do not need `custom`.
    warn_of_unknown(stated, declaration.OF_DECLARATIONS, f"sidekiq_options of {cls.__qualname__}", only_near=True)
    own = _own_options(cls)
    # The name is never inherited; everything else is.
    own_name = declaration.job_name(name or own.pop("name", None), cls.__module__, cls.__qualname__)
    inherited: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= base.__dict__.get("__sidekiq_declared__", _own_options(base))
    inherited.pop("name", None)
    whole = inherited | own
    cls.__sidekiq_declared__ = whole  # type: ignore[attr-defined]
    sidekiq_options = {key: value for key, value in whole.items() if key not in declaration.OUR_OPTIONS}
    definition = ClassDefinition(
        own_name,
        declaration.checked_options(sidekiq_options, own_name),
        cls,
        origin=declaration.origin(cls.__module__, cls.__qualname__),
        is_async=declaration.is_async(entry[0], own_name),
        pool=whole.get("pool"),
    )
    limits = declaration.time_limits(whole.get("timeout"), whole.get("hard_timeout"), own_name)
    definition.timeout_seconds, definition.hard_timeout_seconds = limits
    parents = [base.__dict__["__sidekiq_handle__"] for base in cls.__mro__[1:] if "__sidekiq_handle__" in base.__dict__]
    if parents:
        definition.retry_in_block = parents[0].definition.retry_in_block
        definition.exhausted_block = parents[0].definition.exhausted_block
    cls.__sidekiq_job__ = definition  # type: ignore[attr-defined]
    cls.__sidekiq_handle__ = _ClassHandle(definition, Parameters(own_name, *entry))  # type: ignore[attr-defined]
    registry.add(definition)
