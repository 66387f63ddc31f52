"""Running a task in the caller's process: `Task.apply`, and `apply_async` with `task_always_eager`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery._run import run_signals
from sidekiq_celery._run.task_run import TaskRun, exception_info
from sidekiq_celery._run.tracer import BuildTracer, call_through, made_by
from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._state import _task_stack
from sidekiq_celery._wire.context import Context
from sidekiq_celery._workflow import flow
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import Reject, Retry
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.nodenames import gethostname

if TYPE_CHECKING:
    from sidekiq_celery.result import EagerResult


class EagerRun(TaskRun):
    """A run in the caller's process. It stores results only if asked to, and calls callbacks immediately."""

    is_eager = True

    __slots__ = ()

    def buffer_success(self, retval: Any) -> None:
        """Collect the callbacks, and the result if `task_store_eager_result` is set."""
        if self.is_part:
            self.effects += flow.after_success(self.plan.app, self.request, retval)
        if self.plan.task.store_eager_result and self.plan.stores and not self.ignores_result:
            self.store(retval, states.SUCCESS, None)

    @property
    def stores_errors(self) -> bool:
        """True if a failure is stored."""
        task = self.plan.task
        return bool(task.store_errors_even_if_ignored if self.ignores_result else task.store_eager_result)

    # No script writes the end of an eager run.
    store = TaskRun.store_now

    def run(self, tracer: Callable[..., Any] | None) -> None:
        """Run the task: an `async def` task on an event loop, any other through *tracer*."""
        try:
            if self.plan.is_async:
                _wait_for(self.acall())
            elif tracer is None:
                self.call()
            else:
                call_through(tracer, self)
        except Exception as error:
            if error is not self.retval:
                # A hook has raised, or errors propagate. As in Celery, a Reject is not reported.
                if not isinstance(error, Reject):
                    run_signals.send_internal_error(self, error, exception_info(error))
                raise
        # There are effects unless the app as a whole is eager.
        self.write_effects()


def apply(
    task: Any, call: Mapping[str, Any], throw: bool | None, options: dict[str, Any], build_tracer: BuildTracer
) -> "EagerResult[Any]":
    """Run a task immediately in this process; see `Task.apply`. *call* has the request's fields that it gives."""
    from sidekiq_celery.result import EagerResult

    app: App = task._get_app()
    task_id = call["id"]
    throw = bool(app.conf.task_eager_propagates) if throw is None else throw
    # If it was called on a class, use the registered instance.
    known = app._tasks.get(task.name, task)
    fields = {
        **call,
        "task": task.name,
        "called_directly": False,
        "is_eager": True,
        "hostname": gethostname(),
        "timelimit": _limits(task),
        "ignore_result": options.get("ignore_result", task.ignore_result),
        "delivery_info": {
            "is_eager": True,
            "exchange": options.get("exchange"),
            "routing_key": options.get("routing_key"),
            "priority": options.get("priority"),
        },
        **_lineage(task_id),
        **_stamps(options),
    }
    plan, tracer = made_by(build_tracer, known, eager=True, propagate=throw)
    run = EagerRun(plan, Context(fields), propagate=throw)
    # A worker's run must not collect what is sent here.
    with pipeline_buffer.sending():
        run.run(tracer)
    if isinstance(run.retval, Retry) and run.retval.sig is not None:
        again: EagerResult[Any] = run.retval.sig.apply(retries=call["retries"] + 1)
        return again
    state = run.state or states.PENDING
    traceback = run.einfo.traceback if run.einfo is not None else None
    return EagerResult(task_id, run.retval, state, traceback=traceback, name=task.name)


def round_trip(app: App, args: Any, kwargs: Any, serializer: str | None) -> tuple[Any, Any]:
    """
    Serialize and deserialize arguments, so that they are what a worker would get.

    Raises:
        kombu.exceptions.EncodeError: They cannot be serialized.
    """
    kombu: Any = import_module("kombu.serialization")
    content_type, encoding, data = kombu.dumps((args, kwargs), serializer or app.conf.task_serializer)
    read_args, read_kwargs = kombu.loads(data, content_type, encoding, accept=[content_type])
    return read_args, read_kwargs


def _limits(task: Any) -> list[Any] | None:
    limits = [task.time_limit, task.soft_time_limit]
    return None if limits == [None, None] else limits


def _lineage(task_id: str) -> dict[str, Any]:
    parent = _task_stack.top
    if parent is None or not parent.request:
        return {"parent_id": None, "root_id": task_id}
    return {"parent_id": parent.request.id, "root_id": parent.request.root_id or task_id}


def _stamps(options: dict[str, Any]) -> dict[str, Any]:
    if "stamped_headers" not in options:
        return {}
    names = maybe_list(options["stamped_headers"])
    return {"stamped_headers": names, "stamps": {name: maybe_list(options.get(name, [])) for name in names}}


def _wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine and return its result; in a separate thread if an event loop is already running here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as beside:
        return beside.submit(copy_context().run, asyncio.run, coroutine).result()
