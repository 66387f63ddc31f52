"""
Gives the methods that push a job the signature of the job's own function, so that `inspect.signature`, `help`,
notebooks and `mock.create_autospec` show and check the parameters.
"""

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, TypeVar

from sidekiq_py.jobs.parameters import Parameters
from sidekiq_py.registry import registry

F = TypeVar("F", bound=Callable[..., Any])

_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signed(function: F) -> F:
    """A decorator for a method `(self, …, *args, **kwargs)`: shows the job's parameters in place of the last two."""
    return _Signed(function)  # type: ignore[return-value]


class _Signed:
    """
    Binds a copy of the method that has the job's signature.

    `inspect` reads the signature from a bound method's function, and one function cannot have a different signature for
    each job. The copy is made once per job; a handle and its setters share it. It adds no layer to a call.
    """

    def __init__(self, function: Any) -> None:
        self._function: FunctionType = function

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, handle: Any, owner: type) -> Any:
        if handle is None:
            return self._function
        parameters: Parameters = handle._parameters
        signed_function = parameters.signed.get(self._name)
        if signed_function is None:
            signed_function = parameters.signed[self._name] = _copy(self._function, parameters.signature())
        method = MethodType(signed_function, handle)
        if handle._lasts:
            # From now on, the instance's own attribute is found first, which costs less than a method of the class.
            handle.__dict__[self._name] = method
        return method


def _copy(function: FunctionType, jobs: inspect.Signature | None) -> FunctionType:
    """A copy of *function* with the parameters of a job, or *function* itself if they are unknown."""
    if jobs is None:
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__doc__, copy.__module__, copy.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    copy.__annotations__ = function.__annotations__
    copy.__signature__ = _joined(inspect.signature(function), jobs)  # type: ignore[attr-defined]
    return copy


def _joined(methods: inspect.Signature, jobs: inspect.Signature) -> inspect.Signature:
    """The method's own parameters (`self`, `interval`), followed by the job's."""
    theirs = list(jobs.parameters.values())
    own = [parameter for parameter in methods.parameters.values() if parameter.kind not in _OPEN]
    # Only positional-only parameters may precede positional-only ones, and names must be unique.
    is_positional = any(
        parameter.kind is parameter.POSITIONAL_ONLY or parameter.name in methods.parameters for parameter in theirs
    )
    if is_positional:
        own = [
            parameter.replace(
                kind=parameter.POSITIONAL_ONLY,
                name=f"_{parameter.name}" if parameter.name in jobs.parameters else parameter.name,
            )
            for parameter in own
        ]
    return methods.replace(parameters=[*own, *theirs])


def misfit(job: Any, args: Sequence[Any]) -> tuple[inspect.Signature, TypeError] | None:
    """
    What a declared job takes, and why *args* do not fit; None if they do, or if its function is not known here.

    Args:
        job: A handle, a job class, or the name of either.
    """
    definition = registry.find(job) if isinstance(job, str) else None
    declared = definition.job if definition else job
    # Not the class's own: it may have been overridden, and what pushes the job later does not call it.
    push = getattr(getattr(declared, "__sidekiq_handle__", declared), "perform_async", None)
    if push is None:
        return None
    signature = inspect.signature(push).replace(return_annotation=inspect.Signature.empty)
    try:
        signature.bind(*args)
    except TypeError as error:
        return signature, error
    return None
