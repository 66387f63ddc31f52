"""
One run of a task: signals, hooks, the call, and the effects of its end.

*open → before_start → call → (callbacks, result) → on_success, or on_failure, or on_retry → after_return → close.* The
result and all other effects of the end are not written here but collected in `effects`. In a worker the script that
ends the job writes them (`_run.outcome`), so they happen exactly once, or not at all while the job is still in flight.
Hooks are called before that; until the run is closed, `unwritten` shows this process the result.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any

from sidekiq_celery import signals, states
from sidekiq_celery._run import run_signals, task_log
from sidekiq_celery._run.coroutine_limits import within_limits
from sidekiq_celery._run.plan import Plan
from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._state import _task_stack
from sidekiq_celery._wire.context import Context, get_actual_ignore_result
from sidekiq_celery._workflow import flow, links
from sidekiq_celery.backends.failures import without_exits
from sidekiq_celery.backends.interface import effects_for, unwritten
from sidekiq_celery.exceptions import Ignore, Reject, Retry
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_py.extension import Effect, Outgoing, write

IGNORE_STATES = frozenset({states.IGNORED, states.RETRY, states.REJECTED})

_NOTHING_KNOWN = Context(retries=None)


class TaskRun:
    """
    One run of a task.

    Args:
        plan: The task's plan.
        request: The call's request, complete.
        propagate: True to raise what the task raises, without any failure hooks.

    Attributes:
        state: How the run ended; None while it runs, or if it was cut off.
        retval: The task's return value, or the exception.
        einfo: The exception with its traceback.
        effects: The effects that the end writes.
        again: The next attempts, ready to be enqueued.
        reason: The reason for the next attempt.
    """

    __slots__ = (
        "again",
        "args",
        "effects",
        "einfo",
        "is_open",
        "kwargs",
        "plan",
        "propagate",
        "reason",
        "request",
        "retval",
        "runtime",
        "started_at",
        "state",
        "task_id",
    )

    is_eager = False
    is_unknown: bool = False

    def __init__(self, plan: Plan, request: Context, propagate: bool = False) -> None:
        self.plan = plan
        self.request = request
        self.propagate = propagate
        self.task_id: str = request.id
        self.args: Any = request.args
        self.kwargs: Any = request.kwargs
        self.state: str | None = None
        self.retval: Any = None
        self.einfo: ExceptionInfo | None = None
        self.runtime: float | None = None
        self.effects: list[Effect] = []
        self.again: list[Outgoing] = []
        self.reason: Retry | None = None
        self.is_open = False

    # ---- entry points

    def call(self) -> Any:
        """
        Run the task.

        Returns:
            The task's return value; None if it did not succeed.

        Raises:
            Exception: The task's error, if the task has failed.
        """
        with self:
            try:
                self.prepare()
                retval = self.plan.fun(*self.args, **self.kwargs)
            except Exception as error:
                self.failed(error)
                if self.state == states.FAILURE:
                    raise
            else:
                self.succeeded(retval)
        return self.outcome()

    async def acall(self) -> Any:
        """Run the task on this event loop; otherwise like `call`."""
        with self:
            try:
                self.prepare()
                retval = await self.awaited()
            except Exception as error:
                self.failed(error)
                if self.state == states.FAILURE:
                    raise
            else:
                self.succeeded(retval)
        return self.outcome()

    async def awaited(self) -> Any:
        """Call the task within its time limits, and return its result."""
        task, request = self.plan.task, self.request
        hard, soft = request.time_limit or task.time_limit, request.soft_time_limit or task.soft_time_limit
        returned = self.plan.fun(*self.args, **self.kwargs)
        if not isawaitable(returned):
            return returned
        if not hard and not soft:
            return await returned
        report = partial(task_log.log_time_limit, task.name, self.task_id)
        return await within_limits(returned, hard, soft, report)  # type: ignore[arg-type]

    # ---- the steps

    def __enter__(self) -> None:
        """Start the run: `current_task` and `Task.request` now refer to it."""
        self.is_open = True
        self.started_at = time.monotonic()
        _task_stack.push(self.plan.task)
        self.plan.task.request_stack.push(self.request)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Call what comes after the task's end, unless something else than the task has failed, and end the run."""
        try:
            if error is None or self.state == states.FAILURE:
                self.after()
        finally:
            self.close()

    def prepare(self) -> None:
        """Do what comes before the call: signal, `STARTED` state, `before_start`."""
        plan, task = self.plan, self.plan.task
        if signals.task_prerun.receivers:
            signals.task_prerun.send(sender=task, task_id=self.task_id, task=task, args=self.args, kwargs=self.kwargs)
        if plan.on_task_init is not None:
            plan.on_task_init(self.task_id, task)
        if task.track_started and not self.is_eager and not self.ignores_result:
            self.store_now({"pid": os.getpid(), "hostname": plan.hostname}, states.STARTED)
        if plan.before_start is not None:
            plan.before_start(self.task_id, self.args, self.kwargs)

    def succeeded(self, retval: Any) -> None:
        """Record that the task returned *retval*."""
        try:
            self.buffer_success(retval)
        except Exception as error:
            # The result cannot be written, or the callbacks cannot be sent, so the task has failed.
            self.failed(error)
            raise
        self.state, self.retval = states.SUCCESS, retval
        self.runtime = time.monotonic() - self.started_at
        if self.plan.on_success is not None:
            self._call_late(lambda: self.plan.on_success(retval, self.task_id, self.args, self.kwargs), "on_success")
            if self.state != states.SUCCESS:
                return
        task = self.plan.task
        if signals.task_success.receivers:
            signals.task_success.send(sender=task, result=retval, runtime=self.runtime)
        if self.plan.logs_calls:
            task_log.log_success(task, self.request, retval, self.runtime)

    def failed(self, error: BaseException) -> None:
        """
        Record that the task raised *error*.

        Raises:
            Exception: *error* itself, if the run propagates errors.
        """
        if isinstance(error, Reject | Ignore):
            self._taken_away(error)
            return
        if self.propagate:
            raise error
        if isinstance(error, Retry):
            self._retried(error)
        else:
            self.fail(error)

    def fail(self, error: BaseException, *, calls_hook: bool = True) -> None:
        """
        Record that the task has failed for good with *error*.

        Args:
            calls_hook: True to call `on_failure`, which an unregistered task does not have; False if the task's process
                has died.
        """
        task = self.plan.task
        error = without_exits(error)
        self.state, self.retval = states.FAILURE, error
        self.einfo = einfo = exception_info(error)
        self.effects = []
        self._buffer_failure(error, None if self.is_unknown else _stored_traceback(einfo))
        if calls_hook and not self.is_unknown:
            self._guarded(lambda: task.on_failure(error, self.task_id, self.args, self.kwargs, einfo), "on_failure")
        run_signals.send_failure(self, error, einfo, error.__traceback__ or einfo.traceback)
        task_log.log_end(task, self.request, einfo)

    def after(self) -> None:
        """Call `after_return` after a success, or after a failure that does not raise."""
        hook = self.plan.after_return
        if self.state not in IGNORE_STATES and hook is not None and not self.is_unknown:
            arguments = (self.state, self.retval, self.task_id, self.args, self.kwargs, None)
            self._call_late(lambda: hook(*arguments), "after_return")

    def close(self) -> None:
        """End the run."""
        plan, task = self.plan, self.plan.task
        try:
            run_signals.send_end(self)
        finally:
            unwritten.pop(self.task_id, None)
            _task_stack.pop()
            task.request_stack.pop()
            self.is_open = False
            if self.state == states.REJECTED and self.einfo is not None and self.is_rejected_for_good:
                # Celery's worker sends it when the task's process is done. Source: Celery 5.7.0, worker/request.py.
                run_signals.send_failure(self, self.retval, self.einfo, self.einfo.traceback)
            if not self.is_eager:
                for clean_up in plan.cleans_up:
                    self._guarded(clean_up, "process cleanup")

    def outcome(self) -> Any:
        """The run's return value: the task's if it succeeded, otherwise None."""
        return self.retval if self.state == states.SUCCESS else None

    # ---- the effects of the end

    @property
    def ignores_result(self) -> bool:
        """True if the result is not stored."""
        return bool(get_actual_ignore_result(self.plan.task, self.request))

    @property
    def is_part(self) -> bool:
        """True if the task's end has further effects. The task itself may have asked for them."""
        request = self.request
        return bool(request.callbacks or request.errbacks or request.chain or request.chord)

    @property
    def is_rejected_for_good(self) -> bool:
        """True if the task raised a `Reject` that does not requeue it."""
        return isinstance(self.retval, Reject) and not self.retval.requeue and not self.is_eager

    @property
    def stored_request(self) -> Context:
        """The request with which results are stored: none of the call if the task is not registered, as in Celery."""
        return _NOTHING_KNOWN if self.is_unknown else self.request

    @property
    def stores_errors(self) -> bool:
        """True if failures and retries are stored; those of an unregistered task always are, as in Celery."""
        return bool(self.plan.task.store_errors_even_if_ignored) or self.is_unknown or not self.ignores_result

    def buffer(self, publish: Callable[[], Any]) -> None:
        """Call *publish*, and write the jobs it sends together with the end."""
        with pipeline_buffer.buffering() as jobs:
            publish()
        self.effects += pipeline_buffer.commands(self.plan.app, jobs, self.request)

    def buffer_retry(self, publish: Callable[[], Any], again: Retry) -> None:
        """Do the same for the next attempt."""
        with pipeline_buffer.buffering() as wanted:
            publish()
        self.again = [one for one in wanted if isinstance(one, Outgoing)]
        self.effects += [one for one in wanted if not isinstance(one, Outgoing)]
        self.reason = again

    def buffer_success(self, retval: Any) -> None:
        """Collect the callbacks, the next step and the result."""
        if self.is_part:
            self.effects += flow.after_success(self.plan.app, self.request, retval)
        if self.plan.stores and not self.ignores_result:
            self.store(retval, states.SUCCESS, None)

    def store(self, result: Any, state: str, traceback: str | None) -> None:
        """Write a result: together with the end if results are in the same Redis, otherwise immediately."""
        if not self.task_id:
            # A job without an id: its result could not be looked up.
            return
        backend, settings = self.plan.task.backend, self.plan.broker
        effects = effects_for(backend, self.task_id, state, result, traceback, self.stored_request, settings=settings)
        if effects is None:
            self.store_now(result, state, traceback)
        else:
            self.effects += effects
            if self.is_open:
                unwritten[self.task_id] = (state, result, traceback, self.stored_request)

    def store_now(self, result: Any, state: str, traceback: str | None = None) -> None:
        """Write a result immediately."""
        backend = self.plan.task.backend
        backend.store_result(self.task_id, result, state, traceback=traceback, request=self.stored_request)

    def write_effects(self) -> None:
        """Write the effects of the end on their own, if no script ends a job and writes them."""
        if self.effects:
            client_of(self.plan.app).pool.run(lambda link: write(link, self.effects), idempotent=False)

    def _buffer_failure(self, error: BaseException, traceback: str | None) -> None:
        if self.plan.stores and self.stores_errors:
            if self.task_id and self.request.errbacks and links.calls_errbacks(self.plan.app, self.request):
                # Errbacks may read the result, or point others to it, before the job has ended.
                self._guarded(lambda: self.store_now(error, states.FAILURE, traceback), "storing the failure")
            self._guarded(lambda: self.store(error, states.FAILURE, traceback), "storing the failure")
        if self.is_part:
            self._guarded(lambda: self._buffer_errbacks(error, traceback), "errbacks")

    def _buffer_errbacks(self, error: BaseException, traceback: str | None) -> None:
        state = states.REVOKED if self.state == states.REVOKED else states.FAILURE
        self.effects += flow.after_failure(self.plan.app, self.request, error, traceback, state)

    def _taken_away(self, error: Reject | Ignore) -> None:
        self.state = states.REJECTED if isinstance(error, Reject) else states.IGNORED
        self.retval = error
        self.einfo = einfo = exception_info(error)
        if self.is_rejected_for_good:
            # It will not run again, so callers that wait for it must see that. Source: Celery 5.7.0, worker/request.py.
            self._buffer_failure(error, None)
        task_log.log_end(self.plan.task, self.request, einfo)

    def _retried(self, reason: Retry) -> None:
        task = self.plan.task
        self.state, self.retval = states.RETRY, reason
        self.einfo = einfo = exception_info(reason)
        if self.plan.stores and self.stores_errors:
            self._guarded(lambda: self.store(reason.exc, states.RETRY, einfo.traceback), "storing the retry")
        self._guarded(lambda: task.on_retry(reason.exc, self.task_id, self.args, self.kwargs, einfo), "on_retry")
        if signals.task_retry.receivers:
            signals.task_retry.send(sender=task, request=self.request, reason=reason, einfo=einfo)
        task_log.log_retry(task, self.request, reason)

    # ---- hooks

    def _call_late(self, hook: Callable[[], Any], name: str) -> None:
        """Call a hook after the outcome is decided: only a task that is given back has none. Eager callers see all."""
        try:
            hook()
        except Exception as error:
            if self.is_eager:
                raise
            if isinstance(error, Reject) and error.requeue:
                self.effects = []
                unwritten.pop(self.task_id, None)
                self.failed(error)
            else:
                self._log(name, error)

    def _guarded(self, hook: Callable[[], Any], name: str) -> None:
        """Call a hook, and report its error: it must not prevent the job from ending."""
        try:
            hook()
        except Exception as error:
            if self.is_eager:
                raise
            self._log(name, error)
            run_signals.send_internal_error(self, error, exception_info(error))

    def _log(self, name: str, error: Exception) -> None:
        task = self.plan.task
        shown = task_log.redacted_error(task, error)
        task_log.logger.error(
            "Task %s[%s] %s raised: %r", self.request.shadow or task.name, self.task_id, name, shown, exc_info=shown
        )


def exception_info(error: BaseException) -> ExceptionInfo:
    return ExceptionInfo((type(error), error, error.__traceback__))


def _stored_traceback(einfo: ExceptionInfo) -> str | None:
    """The traceback's text; None if the error was raised nowhere, like that of a time limit."""
    is_raised = einfo.tb is not None or (einfo.error is not None and einfo.error.__cause__ is not None)
    return einfo.traceback if is_raised else None
