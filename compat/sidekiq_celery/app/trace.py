"""
Celery's names for running tasks. The run itself is in `_run.task_run`.

Error trackers patch `task_has_custom` and `build_tracer`. Programs assign texts of their own to the `LOG_` names.
"""

import sys
from types import ModuleType
from typing import Any

from sidekiq_celery._run import task_log
from sidekiq_celery._run.plan import task_has_custom
from sidekiq_celery._run.task_log import (
    LOG_FAILURE,
    LOG_IGNORED,
    LOG_INTERNAL_ERROR,
    LOG_RECEIVED,
    LOG_REJECTED,
    LOG_RETRY,
    LOG_SUCCESS,
    logger,
)
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._run.tracer import Tracer, trace_ok_t
from sidekiq_celery.states import FAILURE, IGNORED, REJECTED, RETRY, SUCCESS

__all__ = (
    "FAILURE",
    "IGNORED",
    "LOG_FAILURE",
    "LOG_IGNORED",
    "LOG_INTERNAL_ERROR",
    "LOG_RECEIVED",
    "LOG_REJECTED",
    "LOG_RETRY",
    "LOG_SUCCESS",
    "REJECTED",
    "RETRY",
    "SUCCESS",
    "TaskRun",
    "build_tracer",
    "logger",
    "reset_worker_optimizations",
    "setup_worker_optimizations",
    "task_has_custom",
    "trace_ok_t",
)


class _Trace(ModuleType):
    """This module, which hands an assigned text on to where it is logged."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.startswith("LOG_"):
            setattr(task_log, name, value)


sys.modules[__name__].__class__ = _Trace


def build_tracer(
    name: str,
    task: Any,
    loader: Any = None,
    hostname: str | None = None,
    store_errors: bool = True,
    Info: Any = None,
    eager: bool = False,
    propagate: bool = False,
    app: Any = None,
    **options: Any,
) -> Tracer:
    """
    Build the function that runs a task: `(id, args, kwargs, request)`.

    Error trackers replace this function. So a worker and `Task.apply` look it up here for each task, pass it the task,
    and run the task through what it returns. An `async def` task is run directly.
    """
    return Tracer(task, hostname=hostname, propagate=propagate)


def setup_worker_optimizations(app: Any, hostname: str | None = None) -> None:
    """Do nothing: a task runs in the same way in a worker and elsewhere. Test suites call it."""


def reset_worker_optimizations(app: Any = None) -> None:
    """Do nothing, as `setup_worker_optimizations`."""
