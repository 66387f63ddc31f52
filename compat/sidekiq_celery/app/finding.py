"""Finds the app that a command line names."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from sidekiq_celery import _state
from sidekiq_celery.utils.imports import import_from_cwd, symbol_by_name


def find_app(
    app: str, symbol_by_name: Callable[..., Any] = symbol_by_name, imp: Callable[..., Any] = import_from_cwd
) -> Any:
    """
    Find the app of `-A`: `module`, `module:attribute`, or a package with a module `celery`.

    In a module, the app is the attribute `app`, or `celery`, or the first app found.

    Raises:
        AttributeError, ImportError: There is no such app.
    """
    try:
        found = symbol_by_name(app, imp=imp)
    except AttributeError:
        found = imp(app) if ":" not in app else _named_in(app, imp)
    return _app_in(found, app, symbol_by_name, imp) if isinstance(found, ModuleType) and ":" not in app else found


def is_of_the_real_celery(found: object) -> bool:
    """Whether *found* is an app of the real Celery, or a proxy for one, such as its `current_app`."""
    return any(kind.__module__ == "celery.app.base" for kind in found.__class__.__mro__)


def _named_in(app: str, imp: Callable[..., Any]) -> Any:
    """
    Look `module:attribute` up again, to raise the right error.

    Raises:
        AttributeError: There is no such attribute, or the module itself raises this error.
    """
    name, _, attribute = app.rpartition(":")
    module = imp(name)
    if not hasattr(module, attribute):
        raise AttributeError(
            f"module {name!r} has no app {attribute!r}; name the variable that holds it, as in {name}:app"
        )
    return getattr(module, attribute)


def _app_in(module: ModuleType, name: str, by_name: Callable[..., Any], imp: Callable[..., Any]) -> Any:
    for attribute in ("app", "celery"):
        found = getattr(module, attribute, None)
        if found is not None and not isinstance(found, ModuleType):
            return found
    if getattr(module, "__path__", None):
        try:
            return find_app(f"{name}.celery", symbol_by_name=by_name, imp=imp)
        except ModuleNotFoundError as error:
            if error.name != f"{name}.celery":
                raise
    suspects = list(vars(module).values())
    # Ours first: a module that has one may import a name of Celery's, too.
    ours = (suspect for suspect in suspects if isinstance(suspect, _state.AppType))
    found = next(ours, None) or next(filter(is_of_the_real_celery, suspects), None)
    if found is not None:
        return found
    raise AttributeError(
        f"module {name!r} has no app: neither its `app` nor its `celery` is one; name it, as in {name}:my_app"
    )
