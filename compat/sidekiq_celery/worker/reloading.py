"""Imports task modules again, for `pool_restart`."""

import logging
import sys
from collections.abc import Iterable
from types import ModuleType

from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.imports import reload_from_cwd

logger = logging.getLogger("celery.worker")


def reload_modules(app: App, modules: str | Iterable[str] | None = None, reload: bool = False) -> None:
    """
    Import modules that are new and, if asked, reload those that are not.

    Args:
        modules: Module names; None for all task modules that the app knows.
        reload: Execute a module that is already loaded again, and re-create its tasks.

    Raises:
        Exception: Whatever a module raises. Its tasks stay as they were.
    """
    names = set(app.loader.task_modules) if modules is None else set(maybe_list(modules) or ())
    for name in sorted(names):
        module = sys.modules.get(name)
        if module is None:
            logger.debug("importing module %s", name)
            app.loader.import_from_cwd(name)
        elif reload:
            logger.debug("reloading module %s", name)
            _reload(app, module)


def _reload(app: App, module: ModuleType) -> None:
    before, had_app = dict(app._tasks), _has_app(module, app)
    for name, task in before.items():
        # A known task keeps its function, whatever is decorated under its name, so it is removed first.
        if task.__module__ == module.__name__:
            del app._tasks[name]
    try:
        reload_from_cwd(module)
        if had_app and not _has_app(module, app):
            # The module creates the app, or imports it from one that does: its tasks belong to another app now.
            logger.warning("%s has a new app: its tasks stay as they were until the worker restarts", module.__name__)
            app._tasks.update(before)
    except BaseException:
        for name, task in before.items():
            app._tasks.setdefault(name, task)
        raise


def _has_app(module: ModuleType, app: App) -> bool:
    return any(value is app for value in vars(module).values())
