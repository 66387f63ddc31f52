"""What all runs of a task have in common, looked up once."""

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from sidekiq_celery.contract import App
from sidekiq_celery.utils.nodenames import gethostname
from sidekiq_celery.utils.objects import mro_lookup
from sidekiq_py.extension import RedisSettings

logger = logging.getLogger("celery.app.trace")

# Where the base classes are, whose methods do nothing.
_OF_BASES = frozenset({"sidekiq_celery.loaders.base", "sidekiq_celery.backends.interface"})


def task_has_custom(task: Any, attr: str) -> bool:
    """Whether the task's class, or one it derives from, defines *attr* itself."""
    own: type = getattr(task, "_base_of_tasks", object)
    return bool(mro_lookup(type(task), attr, stop={own, object}, monkey_patched=[own.__module__]))


class Plan:
    """
    A task, and what its runs have in common.

    Args:
        task: The task, created and bound to its app.
        hostname: The worker's name; by default the machine's.

    Attributes:
        broker: The Redis that holds the worker's jobs; None for a run in the caller's process.
        fun: The callable to run: `run`, or the task itself if its class defines `__call__`. Internal tasks run without
            it: it may ask for arguments that every task of the program has, and Celery has no task in their place.
        before_start, on_success, after_return: The hooks that the task defines, or None.
        stores: True if there is a result backend.
        cleans_up: Called after each run, in addition to the hooks.
        logs_calls: False if the log does not say that the task was received and has succeeded.
    """

    def __init__(self, task: Any, hostname: str | None = None) -> None:
        self.task = task
        self.app: App = task.app
        self.hostname = hostname or gethostname()
        is_internal = getattr(task, "_is_internal", False)
        self.fun: Callable[..., Any] = task if task_has_custom(task, "__call__") and not is_internal else task.run
        self.is_async = iscoroutinefunction(task.run)
        before_start = _own_hook(task, "before_start")
        self.before_start = _logging_errors(before_start, task.name) if before_start and is_internal else before_start
        self.on_success = _own_hook(task, "on_success")
        self.after_return = _own_hook(task, "after_return")
        self.broker: RedisSettings | None = None
        self.stores = type(task.backend).__name__ != "DisabledBackend"
        self.on_task_init = _changed(self.app.loader, "on_task_init")
        self.cleans_up: list[Callable[[], Any]] = [
            call
            for call in (_changed(task.backend, "process_cleanup"), _changed(self.app.loader, "on_process_cleanup"))
            if call is not None
        ]
        self.logs_calls = True


def _own_hook(task: Any, name: str) -> Any:
    return getattr(task, name) if task_has_custom(task, name) else None


def _logging_errors(hook: Callable[..., Any], name: str) -> Callable[..., None]:
    """Let *hook* fail: it may expect what every task of the program has. It is called, for it may set up a context."""

    def call(*args: Any) -> None:
        try:
            hook(*args)
        except Exception:
            logger.exception("before_start failed for %s, which moves a workflow on and runs all the same", name)

    return call


def _changed(part: Any, name: str) -> Any:
    """A method that a class derived from this package's base overrides. Returns None if it is not overridden."""
    found = getattr(part, name, None)
    owner = getattr(found, "__func__", found)
    return None if getattr(owner, "__module__", "") in _OF_BASES else found
