"""
Celery's names for the running of tasks; the run itself is in `_run.task_run`.

`task_has_custom` and `build_tracer` are what error trackers patch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sidekiq_celery import states
from sidekiq_celery._run.plan import Plan, task_has_custom
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._wire.context import Context

__all__ = ("TaskRun", "build_tracer", "task_has_custom", "trace_ok_t")


class trace_ok_t(NamedTuple):
    """What a tracer returns: the result or the error, how it ended if not well, seconds, the result's text."""

    retval: Any
    info: Any
    runtime: float | None
    retstr: str | None


def build_tracer(
    name: str, task: Any, *args: Any, eager: bool = False, propagate: bool = False, **options: Any
) -> Callable[..., trace_ok_t]:
    """
    A function that runs a task: `(id, args, kwargs, request)`.

    Error trackers put their own in its place, to wrap `task.run` when a worker makes its tasks ready: a worker calls it
    once for each task, and then runs the task by itself.
    """

    def trace_task(uuid: str, args: Any, kwargs: Any, request: Any = None) -> trace_ok_t:
        fields = {**(request or {}), "id": uuid, "args": args, "kwargs": kwargs, "called_directly": False}
        run = TaskRun(Plan(task), Context(fields), propagate=propagate)
        try:
            run.call()
        except Exception:
            if run.state != states.FAILURE:
                raise
        returned = run.retval if run.einfo is None else run.einfo
        return trace_ok_t(returned, None if run.state == states.SUCCESS else run, run.runtime, repr(returned))

    return trace_task
