"""`pydantic=True`: validates arguments with their annotated models, and dumps models in results and sent arguments."""

import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured


def pydantic_wrapper(
    app: App,
    task_fun: Callable[..., Any],
    task_name: str,
    strict: bool = True,
    context: dict[str, Any] | None = None,
    dump_kwargs: dict[str, Any] | None = None,
) -> Any:
    """
    Wrap *task_fun* so that its arguments are validated and its result is dumped.

    Args:
        strict, context: For pydantic's `model_validate`; the context also has `celery_app` and `celery_task_name`.
        dump_kwargs: For `model_dump`; the mode is "json" by default.

    Returns:
        A function with an attribute `dump_arguments`, for use on the sending side.

    Raises:
        ImproperlyConfigured: pydantic is not installed.
    """
    try:
        models = importlib.import_module("pydantic")
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            "You need to install pydantic to use pydantic model serialization: pip install pydantic"
        ) from error
    validation = {"strict": strict, "context": {**(context or {}), "celery_app": app, "celery_task_name": task_name}}
    bridge = _Models(task_fun, models.BaseModel, validation, {"mode": "json", **(dump_kwargs or {})})

    @functools.wraps(task_fun)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return bridge.call(args, kwargs)

    wrapper.dump_arguments = bridge.dump_arguments  # type: ignore[attr-defined]
    return wrapper


class _Models:
    """
    Converts models in the arguments and the result of one function.

    Args:
        base: pydantic's `BaseModel`.
        validation: Arguments of `model_validate`.
        dumping: Arguments of `model_dump`.
    """

    def __init__(self, fun: Callable[..., Any], base: Any, validation: dict[str, Any], dumping: dict[str, Any]) -> None:
        self._fun, self._base, self._validation, self._dumping = fun, base, validation, dumping
        self._signature = inspect.signature(fun)
        try:
            self._hints = typing.get_type_hints(fun)
        except (NameError, AttributeError, TypeError):
            # Some names do not exist at run time. The annotations in the signature have to do.
            self._hints = {}
        parameters = self._signature.parameters.values()
        self._positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._keywords = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with models."""
        bound = self._signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            model = self._model_of(name, value)
            if model is not None:
                bound.arguments[name] = self._validated(model, value)
        return self._dumped_result(self._fun(*bound.args, **bound.kwargs))

    def _model_of(self, name: str, value: Any) -> Any:
        """The model that annotates a parameter, or None."""
        annotation = self._hints.get(name, self._signature.parameters[name].annotation)
        if value is not None:
            annotation = _without_none(annotation)
        return annotation if inspect.isclass(annotation) and issubclass(annotation, self._base) else None

    def _validated(self, model: Any, value: Any) -> Any:
        return model.model_validate(value, **self._validation)

    def _dumped_result(self, result: Any) -> Any:
        annotation = _without_none(self._hints.get("return", self._signature.return_annotation))
        is_model = isinstance(result, self._base) and inspect.isclass(annotation)
        return result.model_dump(**self._dumping) if is_model and isinstance(result, annotation) else result

    def dump_arguments(self, args: Any, kwargs: Any, bound: bool = False) -> tuple[Any, Any]:
        """
        Dump the models in a call's arguments that the function validates. Other values are left to the serializer.

        Args:
            bound: The function takes the task itself as its first argument.
        """
        given, named = (args or ()), (kwargs or {})
        if not isinstance(given, list | tuple) or not isinstance(named, Mapping):
            return args, kwargs
        has_models = any(isinstance(value, self._base) for value in (*given, *named.values()))
        if not has_models or not self._fits(given, named, bound):
            return args, kwargs
        names = iter(self._positional[1:] if bound else self._positional)
        dumped = [self._dumped(next(names, None), value) for value in given]
        dumped_named = {
            key: self._dumped(key if key in self._keywords else None, value) for key, value in named.items()
        }
        # If nothing was dumped, the arguments are returned as they came.
        if any(new is not old for new, old in zip(dumped, given, strict=True)):
            args = dumped if isinstance(given, list) else tuple(dumped)
        if any(dumped_named[key] is not value for key, value in named.items()):
            kwargs = dumped_named
        return args, kwargs

    def _fits(self, args: Any, kwargs: Any, bound: bool) -> bool:
        try:
            self._signature.bind(*([None] if bound else []), *args, **kwargs)
        except TypeError:
            return False
        return True

    def _dumped(self, name: str | None, value: Any) -> Any:
        # A model that defines how it is sent (kombu's __json__) is left alone.
        if name is None or not isinstance(value, self._base) or hasattr(type(value), "__json__"):
            return value
        model = self._model_of(name, value)
        if model is None:
            return value
        try:
            dumped = value.model_dump(**self._dumping)
            # Dump only what validates to an equal model: fields may be missing, or the model may be a subclass.
            return dumped if self._validated(model, dumped) == value else value
        except Exception:  # noqa: BLE001 - validators may need what only a worker has
            return value


def _without_none(annotation: Any) -> Any:
    """Return `X` for `X | None`; anything else stays as it is."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = typing.get_args(annotation)
    others = [member for member in members if member is not types.NoneType]
    return others[0] if len(members) == 2 and len(others) == 1 else annotation
