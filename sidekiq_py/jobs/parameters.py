"""
Checks that the arguments of a push fit the parameters of the job's function.

A payload's args are positional; they have no names. A push that the function can never accept is refused where it is
made, rather than 25 times in a worker.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import FunctionType
from typing import Any, NoReturn

from sidekiq_py.errors import ArgumentTypeError, PayloadError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Parameters:
    """
    The parameters of a job.

    Args:
        name: The job's name, for messages.
        function: The function that has the parameters; None accepts any arguments (a job that is implemented
            elsewhere).
        skip: How many of its first parameters the caller does not pass: `self`, and the item of an iterable job.
    """

    __slots__ = ("_function", "_least", "_most", "_name", "_signature", "_skip", "signed")

    def __init__(self, name: str, function: Callable[..., Any] | None, skip: int = 0) -> None:
        self._name = name
        self._function = function
        self._skip = skip
        self._signature: inspect.Signature | None = None
        # The methods of the job's handle that have its signature, by name; maintained by `signatures`.
        self.signed: dict[str, FunctionType] = {}
        # Set at the first push, because inspecting every function at import would cost too much.
        self._least: float = inf
        self._most: float = -inf

    def fit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """
        The args of a payload.

        Raises:
            ArgumentTypeError: They do not fit the function's parameters.
        """
        if kwargs or not self._least <= len(args) <= self._most:
            return self._placed(args, kwargs)
        return list(args)

    def fit_many(self, many: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """
        The args of each payload of a bulk push.

        Raises:
            PayloadError: One of them is not a list.
            ArgumentTypeError: As `fit`.
        """
        for kind in set(map(type, many)):
            if kind is not list and kind is not tuple:
                raise PayloadError(
                    f"bulk arguments contain {kind.__name__} values; give a list of lists: [[1], [2]] for two jobs"
                )
        for length in set(map(len, many)):
            if not self._least <= length <= self._most:
                self._placed(next(tuple(args) for args in many if len(args) == length), {})
        return [args if type(args) is list else list(args) for args in many]

    def _placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        signature = self.signature()
        if signature is None:
            if kwargs:
                self._refuse("runs elsewhere, where its parameters' names are not known; pass positional arguments")
            return list(args)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            self._refuse(f"takes {signature}: {error}")
        if not kwargs:
            return list(args)
        placed: list[Any] = list(bound.args[: len(args)])
        places = [parameter for parameter in signature.parameters.values() if parameter.kind in _POSITIONAL]
        for name in kwargs:
            if name not in signature.parameters or signature.parameters[name].kind not in _POSITIONAL:
                self._refuse(f"takes {name!r} by name only, but a payload's args are positional; make it positional")
        last = max(index for index, parameter in enumerate(places) if parameter.name in kwargs)
        for parameter in places[len(args) : last + 1]:
            placed.append(kwargs.get(parameter.name, parameter.default))
        return placed

    def signature(self) -> inspect.Signature | None:
        """
        The signature for callers, without a return annotation; None if it is unknown. The first call also computes the
        limits, so that most pushes do not need the signature.
        """
        if self._signature is None and self._function is not None:
            try:
                whole = _signature_of(self._function)
            except (TypeError, ValueError):
                self._function = None
            else:
                parameters = list(whole.parameters.values())[self._skip :]
                self._signature = whole.replace(parameters=parameters, return_annotation=whole.empty)
        self._least, self._most = _limits(self._signature)
        return self._signature

    def _refuse(self, why: str) -> NoReturn:
        # The error of `bind` is part of the message; a second traceback would hide the line of the program.
        raise ArgumentTypeError(f"{self._name} {why}", "args") from None


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; for a decorated one the decorator's, which may add or remove arguments."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Annotations may use names that are only imported for type checkers; those stay names.
        return inspect.signature(function, follow_wrapped=False, annotation_format=Format.FORWARDREF)
    return inspect.signature(function, follow_wrapped=False)


def _limits(signature: inspect.Signature | None) -> tuple[float, float]:
    """The least and the greatest number of positional arguments."""
    if signature is None:
        return 0, inf
    parameters = signature.parameters.values()
    places = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    if any(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty for parameter in parameters
    ):
        return inf, -inf  # no payload can satisfy it, so every push is refused with the reason
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    return sum(parameter.default is parameter.empty for parameter in places), inf if is_open else len(places)
