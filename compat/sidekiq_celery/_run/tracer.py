"""
The tracers that `celery.app.trace.build_tracer` returns, and calling a run through a wrapped tracer.

Error trackers and tracing tools replace `build_tracer` with their own function. It passes another task to ours, wraps
the tracer that ours returns, or does both. A worker's run is then called through the wrapper, and the inner tracer
continues that run. If the tracer is not wrapped, the run is called directly.
"""

from collections.abc import Callable
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from sidekiq_celery import states
from sidekiq_celery._run.plan import Plan
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._wire.context import Context

BuildTracer = Callable[..., Callable[..., Any]]


class trace_ok_t(NamedTuple):
    """A tracer's return value: the result or error, details unless it succeeded, seconds, the result as text."""

    retval: Any
    info: Any
    runtime: float | None
    retstr: str | None


class Traced(NamedTuple):
    """A task that is ready to run: its plan, and the tracer to call its runs through, or None."""

    plan: Plan
    tracer: Callable[..., Any] | None


class _Call:
    """A run to be called through a tracer."""

    __slots__ = ("error", "run")

    def __init__(self, run: TaskRun) -> None:
        self.run = run
        self.error: Exception | None = None


_last_made: "ContextVar[Tracer | None]" = ContextVar("sidekiq_celery.last_tracer", default=None)
_waiting: ContextVar[_Call | None] = ContextVar("sidekiq_celery.traced_call", default=None)


class Tracer:
    """
    A function that runs a task: `(id, args, kwargs, request)`.

    Args:
        task: The task, created and bound to its app; possibly wrapped.
        propagate: True to raise what the task raises, and nothing else.
    """

    __slots__ = ("plan", "propagate")

    def __init__(self, task: Any, *, hostname: str | None = None, propagate: bool = False) -> None:
        self.plan = Plan(task, hostname)
        self.propagate = propagate
        _last_made.set(self)

    def __call__(self, uuid: str, args: Any, kwargs: Any, request: Any = None) -> trace_ok_t:
        call = _waiting.get()
        if call is None or call.run.task_id != uuid:
            fields = {**(request or {}), "id": uuid, "args": args, "kwargs": kwargs, "called_directly": False}
            call = _Call(TaskRun(self.plan, Context(fields), propagate=self.propagate))
        # Anything that the task itself runs is another call, even under the same id.
        _waiting.set(None)
        run = call.run
        run.args, run.kwargs = args, kwargs
        try:
            run.call()
        except Exception as error:
            if run.state != states.FAILURE:
                raise
            call.error = error
        returned = run.retval if run.einfo is None else run.einfo
        return trace_ok_t(returned, None if run.state == states.SUCCESS else run, run.runtime, repr(returned))


def made_by(build_tracer: BuildTracer, task: Any, hostname: str | None = None, **options: Any) -> Traced:
    """Build the tracer for *task* with *build_tracer*."""
    # A wrapper may hide this.
    is_async = iscoroutinefunction(task.run)
    _last_made.set(None)
    outer = build_tracer(task.name, task, task.app.loader, hostname, app=task.app, **options)
    own = _last_made.get()
    if own is None:
        # The tracer does not contain ours, so it is simply called.
        return Traced(Plan(task, hostname), outer)
    own.plan.is_async = is_async
    return Traced(own.plan, None if outer is own else outer)


def call_through(tracer: Callable[..., Any], run: TaskRun) -> Any:
    """
    Call *run* through *tracer*.

    Raises:
        Exception: The task's error, if the task has failed; or an error that *tracer* itself raised.
    """
    call = _Call(run)
    before = _waiting.set(call)
    try:
        tracer(run.task_id, run.args, run.kwargs, run.request.__dict__)
    finally:
        _waiting.reset(before)
    if call.error is not None:
        raise call.error
    return run.outcome()
