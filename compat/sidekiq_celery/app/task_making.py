"""Makes tasks from functions and classes, one per name."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from sidekiq_celery.app.autoretry import add_autoretry_behaviour
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import DuplicateTaskNameWarning
from sidekiq_celery.utils.imports import qualname


class Maker(App, Protocol):
    """An app, with the methods and flags that decide how its tasks are made."""

    autofinalize: bool
    finalized: bool
    _duplicate_task_names_warned: set[str]

    def gen_task_name(self, name: str, module: str) -> str: ...

    def type_checker(self, fun: Callable[..., Any], bound: bool = False) -> Any: ...


def make_task(
    app: Maker,
    fun: Callable[..., Any],
    name: str | None = None,
    base: Any = None,
    bind: bool = False,
    pydantic: bool = False,
    pydantic_strict: bool = False,
    pydantic_context: dict[str, Any] | None = None,
    pydantic_dump_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """
    Make the task that calls *fun*, and register it. If its name is taken, return the task that has it.

    Args:
        name: By default the function's module and name.
        base: The task's base class; by default `app.Task`.
        bind: The function takes the task as its first argument.
        pydantic, pydantic_strict, pydantic_context, pydantic_dump_kwargs: Validate arguments by their annotations.
        options: Attributes of the task.

    Raises:
        RuntimeError: The app is not finalized and does not finalize itself.
    """
    if not app.finalized and not app.autofinalize:
        raise RuntimeError("Contract breach: app not finalized")
    known_as = name or app.gen_task_name(fun.__name__, fun.__module__)
    if known_as in app._tasks:
        existing = app._tasks[known_as]
        _warn_of_another_function(app, existing, fun, known_as)
        return existing
    dump_arguments = None
    called = fun
    if pydantic:
        from sidekiq_celery.app.pydantic_models import pydantic_wrapper

        called = pydantic_wrapper(app, fun, known_as, pydantic_strict, pydantic_context, pydantic_dump_kwargs)
        dump_arguments = staticmethod(functools.partial(called.dump_arguments, bound=bind))
    run: Any = called if bind else staticmethod(called)
    attributes = {
        "app": app,
        "name": known_as,
        "run": run,
        "_decorated": True,
        "_decorated_fun": staticmethod(fun),
        "_dump_pydantic_arguments": dump_arguments,
        "__doc__": fun.__doc__,
        "__module__": fun.__module__,
        "__annotations__": _annotations(called),
        "__header__": app.type_checker(called, bound=bind),
        "__wrapped__": run,
        **options,
    }
    if options.get("unique_key") is not None:
        attributes["unique_key"] = staticmethod(options["unique_key"])
    task = type(fun.__name__, (base or app.Task,), attributes)()
    task.__qualname__ = getattr(fun, "__qualname__", fun.__name__)
    return _register(app, task, options)


def _register(app: Maker, task: Any, options: dict[str, Any]) -> Any:
    # Complete it first: other threads use a task as soon as it is registered. Of two that use it for the first time at
    # the same moment, only one registers it, and its `on_bound` finds it among the app's tasks.
    task._complete_for(app)
    add_autoretry_behaviour(task, **options)
    registered = app._tasks.setdefault(task.name, task)
    if registered is task:
        task.bind(app)
    return registered


def register_class(app: Maker, task: Any, options: dict[str, Any]) -> Any:
    """Register a task given as a class or an instance. It replaces an existing task with its name."""
    instance: Any = task() if inspect.isclass(task) else task
    if not instance.name:
        instance.name = app.gen_task_name(type(instance).__name__, type(instance).__module__)
    existing = app.tasks.get(instance.name)
    if existing is not None and existing is not instance:
        _warn_once(
            app,
            instance.name,
            _callable_name(existing),
            _callable_name(instance),
            "The new callable replaced the existing one; calls under this name now reach the new callable.",
        )
    add_autoretry_behaviour(instance, **options)
    app.tasks[instance.name] = instance
    instance._app = app
    instance.bind(app)
    return instance


def _annotations(fun: Callable[..., Any]) -> dict[str, Any]:
    try:
        return inspect.get_annotations(fun)
    except (NameError, ValueError):
        # Some names are only imported for type checkers (Python 3.14 resolves annotations lazily); those of a mock are
        # no dict.
        return {}


def _callable_name(task: Any) -> str:
    return qualname(getattr(task, "_decorated_fun", None) or type(task))


def _warn_of_another_function(app: Maker, existing: Any, fun: Callable[..., Any], name: str) -> None:
    # The same function comes again with a module that is imported twice, or a shared task.
    known = getattr(existing, "_decorated_fun", None)
    if known is None or known is fun:
        return
    _warn_once(
        app,
        name,
        qualname(known),
        qualname(fun),
        "The new callable was not registered; calls under this name reach the callable registered first.",
    )


def _warn_once(app: Maker, name: str, existing: str, new: str, consequence: str) -> None:
    if name in app._duplicate_task_names_warned:
        return
    app._duplicate_task_names_warned.add(name)
    text = (
        f"Task name {name!r} is already registered to a different callable.\n\n"
        f"Existing: {existing}\nNew:      {new}\n\n"
        f"{consequence}\n\nEvery task must have a unique name. Pass an explicit name= to the task decorator, or rename "
        "one of the callables."
    )
    warnings.warn(DuplicateTaskNameWarning(text), stacklevel=_level_of_the_program())


def _level_of_the_program() -> int:
    """The stack level of the first frame outside our package: a task is made by its decorator, or on first use."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "sidekiq_celery" and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
