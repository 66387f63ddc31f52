"""
Adapts an app to Django, if the variable `DJANGO_SETTINGS_MODULE` is set.

1. The app becomes the default of every thread, so that `shared_task` finds it within a request.
2. Before task modules are imported, Django is set up and its checks run. Each of its apps may have a module `tasks`.
3. Tasks never use a database connection that is unusable or obsolete: see `sidekiq_py.contrib.django_worker`.
4. Tasks have `delay_on_commit`, unless the program has its own task class.
"""

import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any, Protocol

from sidekiq_celery import _state, signals
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import FixupWarning

__all__ = ("DjangoFixup", "DjangoWorkerFixup", "fixup")

_TASK_CLASS = "sidekiq_celery.contrib.django.task:DjangoTask"


class _App(App, Protocol):
    task_cls: Any
    _custom_task_cls_used: bool

    def set_default(self) -> None: ...


def fixup(app: _App, env: str = "DJANGO_SETTINGS_MODULE") -> "DjangoFixup | None":
    """Adapt *app* to Django if the variable *env* is set, as in a Django project."""
    if not os.environ.get(env):
        return None
    if find_spec("django") is None:
        text = f"{env} is set but Django is not installed: install it, or unset {env}. The app is not adapted to Django"
        warnings.warn(FixupWarning(text), stacklevel=3)
        return None
    return DjangoFixup(app).install()


class DjangoFixup:
    """
    Adapts an app to Django.

    Args:
        app: The app.
    """

    def __init__(self, app: _App) -> None:
        self.app = app
        if _state.default_app is None:
            app.set_default()

    def install(self) -> "DjangoFixup":
        """Adapt the app. This does not import Django yet."""
        # A project's modules are found from the directory of its manage.py. While `-A` is imported, the directory is
        # in the path anyway, but only for that long. This entry stays.
        sys.path.insert(0, os.getcwd())
        if not self.app._custom_task_cls_used:
            self.app.task_cls = _TASK_CLASS
        signals.import_modules.connect(self.on_import_modules, sender=self.app)
        return self

    def on_import_modules(self, **_: Any) -> None:
        """Set Django up before task modules are imported, because they import models."""
        import django
        from django.core.checks import run_checks

        django.setup()
        if not os.environ.get("CELERY_SKIP_CHECKS"):
            run_checks()
        DjangoWorkerFixup(self.app).install()

    def autodiscover_tasks(self) -> list[str]:
        """The packages of INSTALLED_APPS."""
        from django.apps import apps

        return [config.name for config in apps.get_app_configs()]


class DjangoWorkerFixup:
    """
    Keeps tasks from connections that the database has dropped. Test suites replace `install`, so that tasks of a worker
    in their process leave the connections open.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    def install(self) -> "DjangoWorkerFixup":
        """Close stale connections around each task from now on."""
        from sidekiq_py import server_middleware
        from sidekiq_py.contrib.django_worker import fresh_connections

        if fresh_connections not in server_middleware:
            server_middleware.prepend(fresh_connections)
        return self
