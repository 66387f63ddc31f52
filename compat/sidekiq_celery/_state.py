"""
The current app and the current task.

An app becomes current in the thread that creates it. A thread that created none uses the default app (`set_default`),
or else the app that was created last. Celery falls back to an app without settings instead, so that `shared_task` in a
web server's thread sends to nowhere.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sidekiq_celery.contract import App, Task
from sidekiq_celery.local import Proxy
from sidekiq_celery.utils.threads import LocalStack

__all__ = (
    "AppType",
    "connect_on_app_finalize",
    "current_app",
    "current_task",
    "get_current_app",
    "get_current_task",
    "get_current_worker_task",
    "set_default_app",
)

Finalizer = Callable[[App], Any]
F = TypeVar("F", bound=Callable[..., Any])


class AppType:
    """The base class of `Celery`. Modules that must not import `Celery` use it to recognize an app."""


class _OfThread(threading.local):
    current_app: App | None = None


default_app: App | None = None
"""The app for threads without a current app."""

_tls = _OfThread()
_latest_current: "weakref.ref[App] | None" = None
# Never changed, but replaced, because other threads may be going through it.
_apps: "weakref.WeakSet[App]" = weakref.WeakSet()
_changing = threading.Lock()
# In the order in which they were connected, each once: shared tasks keep the order of their imports.
_on_app_finalizers: dict[Finalizer, None] = {}
_task_join_will_block = False
_task_stack: LocalStack[Any] = LocalStack()

push_current_task = _task_stack.push
pop_current_task = _task_stack.pop


def connect_on_app_finalize(callback: F) -> F:
    """Call *callback* with every app that is finalized from now on."""
    # The tests of programs put a set in its place, which is what Celery has there.
    _on_app_finalizers.update({callback: None})
    return callback


def _announce_app_finalized(app: App) -> None:
    for callback in tuple(_on_app_finalizers):
        callback(app)


def _set_task_join_will_block(blocks: bool) -> None:
    global _task_join_will_block
    _task_join_will_block = blocks


def task_join_will_block() -> bool:
    """Whether waiting for a result here would block a worker."""
    return _task_join_will_block


def _register_app(app: App) -> None:
    global _apps
    with _changing:
        _apps = weakref.WeakSet((*_apps, app))


def _deregister_app(app: App) -> None:
    global _apps
    with _changing:
        _apps = weakref.WeakSet(known for known in _apps if known is not app)


def set_default_app(app: App | None) -> None:
    """Use *app* in every thread that has no current app of its own."""
    global default_app
    default_app = app


def _set_current_app(app: App | None) -> None:
    global _latest_current
    _tls.current_app = app
    _latest_current = None if app is None else weakref.ref(app)


def known_app() -> App | None:
    """The current app, or None if there is none."""
    return _tls.current_app or default_app or (_latest_current() if _latest_current is not None else None)


def get_current_app() -> App:
    """The current app. If there is none, create one without settings."""
    current = known_app()
    if current is not None:
        return current
    # Apps import this module, so the package makes the app. The package does not import this module to tell it how:
    # every worker imports the package, and most have no tasks.
    package: Any = sys.modules["sidekiq_celery"]
    fallback: App = package._make_fallback()
    with _changing:
        # Another thread may have been faster. What is set in one of them must be set for all.
        app = known_app() or fallback
        set_default_app(app)
    return app


_get_current_app = get_current_app


def get_current_task() -> Task | None:
    """The task that is being called in this thread or context, or None."""
    return _task_stack.top


def get_current_worker_task() -> Task | None:
    """The task that a worker is running here, even if that task has called others directly since; or None."""
    task: Task
    for task in reversed(_task_stack.stack):
        if not task.request.called_directly:
            return task
    return None


if TYPE_CHECKING:
    current_app: App
    current_task: Task
else:
    current_app = Proxy(get_current_app)
    current_task = Proxy(get_current_task)


def _get_active_apps() -> "weakref.WeakSet[App]":
    return _apps


def app_or_default(app: App | None = None) -> App:
    """*app*, or the current one."""
    return get_current_app() if app is None else app
