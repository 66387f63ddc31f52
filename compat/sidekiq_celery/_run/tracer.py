"""
What `celery.app.trace.build_tracer` returns, and how a run goes through what somebody has put around it.

Error trackers and tracers replace `build_tracer` by a function of theirs that hands ours another task, puts something
around the tracer that ours returns, or both. A worker's run is called through that, and the tracer within takes the run
up again. Where nobody has put anything around it, the run is called directly.
"""

from collections.abc import Callable
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from sidekiq_celery import states
from sidekiq_celery._run.plan import Plan
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._wire.context import Context

__all__ = ("BuildTracer", "Traced", "Tracer", "call_through", "made_by", "trace_ok_t")

BuildTracer = Callable[..., Callable[..., Any]]


class trace_ok_t(NamedTuple):
    """What a tracer returns: the result or the error, how it ended if not well, seconds, the result's text."""

    retval: Any
    info: Any
    runtime: float | None
    retstr: str | None


class Traced(NamedTuple):
    """A task that is ready to run: what its runs have in common, and what they are called through, if by anything."""

    plan: Plan
    tracer: Callable[..., Any] | None


class _Call:
    """A run that is to be called through a tracer."""

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
        task: Made and bound to its app; perhaps with something around it.
        propagate: Raise what the task raises, and nothing else.
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
        # What the task runs in its turn is another call, also of its own id.
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
    """What *build_tracer* makes of *task*."""
    # Wrappers do not show it.
    is_async = iscoroutinefunction(task.run)
    _last_made.set(None)
    outer = build_tracer(task.name, task, task.app.loader, hostname, app=task.app, **options)
    own = _last_made.get()
    if own is None:
        # A tracer that has nothing of ours within: it is called, and whatever it does is done.
        return Traced(Plan(task, hostname), outer)
    own.plan.is_async = is_async
    return Traced(own.plan, None if outer is own else outer)


def call_through(tracer: Callable[..., Any], run: TaskRun) -> Any:
    """
    Call *run* through *tracer*.

    Raises:
        Exception: What the task raised, if it has failed by that; or what *tracer* itself raised.
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
