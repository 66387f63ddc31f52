"""
Celery's names for running tasks. The run itself is in `_run.task_run`.

Error trackers patch `task_has_custom` and `build_tracer`.
"""

from typing import Any

from sidekiq_celery._run.plan import task_has_custom
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._run.tracer import Tracer, trace_ok_t

__all__ = ("TaskRun", "build_tracer", "task_has_custom", "trace_ok_t")


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
