"""The app and its parts. Names that live in other modules are imported when they are first used."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, Literal, cast, overload

from sidekiq_celery import _state
from sidekiq_celery._state import app_or_default, pop_current_task, push_current_task
from sidekiq_celery._submodules import submodule
from sidekiq_celery._type_variables import P, T
from sidekiq_celery.local import Proxy

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery as Celery
    from sidekiq_celery.app.bug_report import bugreport as bugreport
    from sidekiq_celery.app.task import Task
    from sidekiq_celery.app.typing_of_tasks import TaskOfClass

__all__ = (
    "Celery",
    "app_or_default",
    "bugreport",
    "default_app",
    "pop_current_task",
    "push_current_task",
    "shared_task",
)

default_app: Any = Proxy(lambda: _state.default_app)
"""The app used by threads that have no current app."""

_HOMES = {"Celery": "sidekiq_celery.app.base", "bugreport": "sidekiq_celery.app.bug_report"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return submodule(__name__, name)
    return getattr(import_module(_HOMES[name]), name)


@overload
def shared_task(fun: Callable[Concatenate[Any, P], T], /, *, bind: Literal[True], **options: Any) -> "Task[P, T]": ...
@overload
def shared_task(fun: Callable[P, T], /, **options: Any) -> "Task[P, T]": ...
@overload
def shared_task(*, pydantic: Literal[True], **options: Any) -> Callable[[Callable[..., Any]], "TaskOfClass"]: ...
@overload
def shared_task(
    *, bind: Literal[True], base: type[Any], **options: Any
) -> Callable[[Callable[Concatenate[Any, P], T]], "TaskOfClass[P, T]"]: ...
@overload
def shared_task(*, base: type[Any], **options: Any) -> Callable[[Callable[P, T]], "TaskOfClass[P, T]"]: ...
@overload
def shared_task(
    *, bind: Literal[True], **options: Any
) -> Callable[[Callable[Concatenate[Any, P], T]], "Task[P, T]"]: ...
@overload
def shared_task(**options: Any) -> Callable[[Callable[P, T]], "Task[P, T]"]: ...
def shared_task(*args: Any, **options: Any) -> Any:
    """
    Make a function a task of every app, present and future. Also works as a decorator with options.

    Returns:
        A proxy for the task of whichever app is current when the proxy is used.

    Raises:
        TypeError: The function is such a proxy already.
    """
    if len(args) == 1 and callable(args[0]):
        return _shared(args[0], options)
    if args:
        raise TypeError("@shared_task takes a function and keywords; name the options, as in @shared_task(bind=True)")
    return lambda fun: _shared(fun, options)


def _shared(fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    if type(fun) is Proxy:
        raise TypeError(
            "@shared_task was applied more than once to the same function. Remove the extra @shared_task decorator."
        )
    given_name = options.get("name")
    _state.connect_on_app_finalize(lambda app: app._task_from_fun(fun, **options))
    for app in cast("tuple[Celery, ...]", tuple(_state._get_active_apps())):
        if app.finalized:
            with app._finalize_mutex:
                app._task_from_fun(fun, **options)

    def task_of_the_current_app() -> Any:
        app = cast("Celery", _state.get_current_app())
        return app.tasks[given_name or app.gen_task_name(fun.__name__, fun.__module__)]

    return Proxy(task_of_the_current_app)
