"""
A task as a job of the engine.

`register_tasks` puts an app's tasks into the registry in which a worker looks up a payload's class. From then on the
engine runs them like any other job: `bind` creates the run for a payload, and `decide_outcome` decides the job's
outcome.
"""

import logging
import time
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache
from operator import is_
from signal import Signals
from typing import TYPE_CHECKING, Any

from sidekiq_celery import signals, states
from sidekiq_celery._admission.revokes import keep_less_long
from sidekiq_celery._run import task_log
from sidekiq_celery._run.failed_tasks import FailedTasks
from sidekiq_celery._run.outcome import decide_outcome
from sidekiq_celery._run.received import Message, request_of
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._run.time_limits import seconds_of
from sidekiq_celery._run.tracer import Traced, call_through
from sidekiq_celery._run.unknown_tasks import UnknownTask
from sidekiq_celery._send import flow_store, unique
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._send.header_checks import are_limits, sorted_out
from sidekiq_celery._send.running_task import running
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.message import aware
from sidekiq_celery._wire.payload import EMBEDS, KEY, arguments_of, request_fields, task_headers_of, with_embedded
from sidekiq_celery._wire.priorities import base_queue, steps
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import NotRegistered, Reject, SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from sidekiq_py.errors import HardTimeLimitError, TerminatedError
from sidekiq_py.extension import Attempt, JobDefinition, Outcome
from sidekiq_py.telemetry import JOB_EXPIRED

if TYPE_CHECKING:
    from sidekiq_celery.events.task_events import TaskEvents

logger = logging.getLogger("celery.app.trace")


class JobRun(TaskRun):
    """The run of a task for a job's payload."""

    __slots__ = ("definition", "is_unknown", "lock", "payload", "refusal")

    def __init__(self, definition: "TaskDefinition", payload: dict[str, Any]) -> None:
        self.definition = definition
        self.payload = payload
        self.refusal: Exception | None = None
        request = self._request_of(payload.get("args") or [])
        # An unregistered task has no hooks, and only `task_unknown` is sent.
        self.is_unknown = isinstance(definition.task, UnknownTask)
        if self.is_unknown:
            self.refusal = definition.task.not_registered()
        super().__init__(definition.plan, request)

    def __call__(self, *args: Any) -> Any:
        """Run the task; called by the engine."""
        if not self._may_start(args):
            return None
        tracer = self.definition.tracer
        return self.call() if tracer is None else call_through(tracer, self)

    async def on_loop(self, *args: Any) -> Any:
        """Run the task on the event loop."""
        if not self._may_start(args):
            return None
        return await self.acall()

    def prepare(self) -> None:
        """
        Do what comes before the call.

        Raises:
            Exception: The job cannot be read; nothing else is done then.
        """
        if self.refusal is not None:
            self._send_refused(self.refusal)
            raise self.refusal
        lock = self.lock
        if lock is not None and unique.is_until_start(lock):
            pool = client_of(self.definition.app).pool
            self._guarded(lambda: unique.release(pool, lock, self.task_id), "releasing its lock")
        super().prepare()

    def _send_refused(self, error: Exception) -> None:
        consumer = self.definition.consumer
        if isinstance(error, NotRegistered):
            name, task_id = self.plan.task.name, self.task_id
            # As in Celery, where looking up the name has failed.
            exc = KeyError(name)
            signals.task_unknown.send(sender=consumer, message=Message(self.request), exc=exc, name=name, id=task_id)
        elif signals.task_rejected.receivers:
            signals.task_rejected.send(sender=consumer, message=Message(self.request), exc=error)

    def end_from_outside(self, error: BaseException) -> None:
        """
        Handle a run that something other than the task has ended: a hard limit, a remote control command, middleware.

        Args:
            error: The reason.
        """
        self.effects, self.again = [], []
        if isinstance(error, TerminatedError):
            self.effects.append(keep_less_long(self.task_id))
            self.revoke("terminated", terminated=True, signum=_signal(error.signal_number))
            return
        is_too_late = isinstance(error, HardTimeLimitError)
        if is_too_late:
            seconds = self.definition.hard_timeout_seconds or 0.0
            task_log.log_time_limit(self.plan.task.name, self.task_id, seconds, is_hard=True)
            error = TimeLimitExceeded(self.definition.hard_timeout_seconds).with_traceback(error.__traceback__)
        requests = self.plan.task.request_stack
        requests.push(self.request)
        try:
            # Only a time limit calls the hooks, not a lost process. Source: Celery 5.7.0, worker/request.py.
            self.fail(error, calls_hook=is_too_late)
            if is_too_late:
                self.after()
        finally:
            requests.pop()

    def revoke(
        self,
        reason: str,
        *,
        terminated: bool = False,
        signum: Any = None,
        expired: bool = False,
        stamp: Mapping[str, Any] | None = None,
    ) -> None:
        """Revoke the task: it does not start, or does not continue. The log names the *stamp*."""
        task = self.plan.task
        self.state, self.retval = states.REVOKED, TaskRevokedError(reason)
        if self.plan.stores and self.stores_errors:
            self._guarded(lambda: self.store(self.retval, states.REVOKED, None), "storing the state")
        if self.is_part:
            error = self.retval
            self._guarded(lambda: self._buffer_errbacks(error, None), "errbacks")
        if signals.task_revoked.receivers:
            signals.task_revoked.send(
                sender=task, request=self.request, terminated=terminated, signum=signum, expired=expired
            )
        task_log.log_revoked(task, self.request, stamp)

    def finish(self, error: BaseException | None, now: float) -> None:
        """
        Report the run's end to monitors, and write the change to a unique task's lock together with it.

        Args:
            error: The error with which the engine ended the run, if any.
            now: Seconds since the epoch.
        """
        events = self.definition.events
        if events is not None and events.is_on:
            events.ended(self, error)
        if self.lock is None or not self.task_id:
            return
        is_given_back = isinstance(self.retval, Reject) and self.retval.requeue
        if not is_given_back:
            self.effects.append(unique.at_end(self.lock, self.task_id, self.again, now))

    def _request_of(self, raw_args: list[Any]) -> Context:
        definition, payload = self.definition, self.payload
        task_headers: Mapping[str, Any] = {}
        args: Any = raw_args
        kwargs: Any = {}
        try:
            task_headers, self.refusal = sorted_out(task_headers_of(payload))
            args, kwargs = arguments_of(definition.app, raw_args, task_headers)
            if EMBEDS in task_headers:
                task_headers, refusal = sorted_out(with_embedded(definition.app, task_headers))
                self.refusal = self.refusal or refusal
        except Exception as error:  # noqa: BLE001 - another program may have written anything; the job is not run then
            self.refusal = error
        self.lock = unique.mark_of(task_headers) if task_headers else None
        queue = payload.get("queue") or ""
        if definition.priority_steps:
            queue = base_queue(str(queue), definition.priority_steps)
        request = Context.__new__(Context)
        request.__dict__ = request_fields(
            definition.name, payload, task_headers, queue, args, kwargs, definition.plan.hostname
        )
        if definition.plan.task.ignore_result and "ignore_result" not in task_headers:
            # If the task itself ignores its result, its calls do not repeat that.
            request.ignore_result = True
        if request.chain:
            request._next_step = flow_store.answered(payload)
        if "timelimit" in task_headers and definition.has_outlived(request.timelimit):
            request.time_limit = request.soft_time_limit = None
        return request

    def _may_start(self, args: tuple[Any, ...]) -> bool:
        """Apply changes that middleware made to the arguments. Returns False if the task is expired or revoked."""
        given = self.payload.get("args") or []
        if len(args) != len(given) or not all(map(is_, args, given)):
            self._read_again(list(args))
        if self.plan.logs_calls:
            task_log.log_received(self.plan.task, self.request)
        events = self.definition.events
        if events is not None and events.is_on:
            events.received(self)
        expires = self.request.expires
        if expires is not None and aware(expires).timestamp() < time.time():
            self.revoke("expired", expired=True)
            if JOB_EXPIRED.handlers:
                JOB_EXPIRED.emit({"payload": self.payload, "queue": str(self.payload.get("queue") or "")})
            return False
        stamp = self.definition.revoked_by(self.request)
        if stamp is not None:
            self.effects.append(keep_less_long(self.task_id))
            self.revoke("revoked", stamp=stamp)
            return False
        if self.is_unknown:
            return True
        if signals.task_received.receivers:
            self._guarded(self._send_received, "sending task_received")
        if events is not None and events.is_on:
            events.started(self)
        return True

    def _send_received(self) -> None:
        signals.task_received.send(sender=self.definition.consumer, request=request_of(self))

    def _read_again(self, raw_args: list[Any]) -> None:
        if not self.is_unknown:
            self.refusal = None
        self.request = self._request_of(raw_args)
        self.args, self.kwargs = self.request.args, self.request.kwargs


class TaskDefinition(JobDefinition):
    """
    A task as the engine sees it.

    Args:
        task: The task, created and bound to its app.
        traced: The result of `celery.app.trace.build_tracer`, or of a replacement for it.
        revoked_by: Asked with a call's request before the task starts; it may block. Returns the stamp by which the
            task is revoked, empty if by its id; None if it is not.
        has_hard_limits: True if each of the worker's processes runs one task at a time and can be killed.
        events: Sends events about its runs to monitors.
        consumer: The sender of the signals for received jobs, in a Celery-style worker.
    """

    __slots__ = (
        *("_limited", "app", "consumer", "events", "failed_tasks", "has_hard_limits", "plan"),
        *("priority_steps", "revoked_by", "task", "tracer"),
    )

    def __init__(
        self,
        task: Any,
        failed_tasks: FailedTasks,
        traced: Traced,
        *,
        revoked_by: Callable[[Context], Mapping[str, Any] | None],
        has_hard_limits: bool,
        events: "TaskEvents | None",
        consumer: Any,
    ) -> None:
        self.task = task
        self.consumer = consumer
        self.app: App = task.app
        self.plan, self.tracer = traced
        self.plan.broker = client_of(task.app).pool.settings
        super().__init__(task.name, {}, task, origin=f"{type(task).__qualname__}", is_async=self.plan.is_async)
        self.failed_tasks = failed_tasks
        self.revoked_by = revoked_by
        self.events = events
        self.has_hard_limits = has_hard_limits
        self.priority_steps = steps(self.app)
        self.is_acknowledged_early = task._is_acknowledged_early
        self.timeout_error = SoftTimeLimitExceeded
        self.decide_outcome = self._decide_outcome
        self._limit(task.time_limit, task.soft_time_limit)
        self.resolve = self._of_payload
        self._limited = lru_cache(maxsize=256)(self._with_limits)

    def bind(self, payload: dict[str, Any], stopping: Callable[[], bool]) -> Callable[..., Any]:
        """Create the run for *payload*."""
        run = JobRun(self, payload)
        running.set(run)
        return run.on_loop if self.is_async else run

    def _limit(self, hard: float | None, soft: float | None) -> None:
        hard, soft = seconds_of(self.task.name, hard), seconds_of(self.task.name, soft)
        # On the event loop the run enforces the soft limit itself, so that the task can catch the error.
        self.timeout_seconds = None if self.is_async else soft
        self.hard_timeout_seconds = hard if self.has_hard_limits and not self.is_async else None

    def report_timeout(self, payload: dict[str, Any]) -> None:
        """Log that a run has reached its soft limit; called by the engine, in another thread than the task's."""
        task_log.log_time_limit(self.name, payload.get("jid"), self.timeout_seconds or 0.0, is_hard=False)

    def take_limits(self) -> None:
        """Apply the task's changed limits to runs that start from now on."""
        self._limit(self.task.time_limit, self.task.soft_time_limit)
        self._limited.cache_clear()

    def has_outlived(self, limits: Any) -> bool:
        """Whether a call carries limits that the task had before they were changed in this process."""
        former = self.task.__dict__.get("_former_limits")
        return former is not None and isinstance(limits, list | tuple) and tuple(limits) in former

    def _of_payload(self, payload: dict[str, Any]) -> JobDefinition:
        """This definition, or a copy with the limits that the call asks for."""
        task_headers = payload.get(KEY)
        limits = task_headers.get("timelimit") if type(task_headers) is dict else None
        if not limits or not are_limits(limits) or self.has_outlived(limits):
            return self
        limited = self._limited(*limits)
        limited.admit = self.admit
        return limited

    def _with_limits(self, hard: float | None, soft: float | None) -> "TaskDefinition":
        limited = copy(self)
        limited.decide_outcome = limited._decide_outcome
        limited._limit(hard or self.task.time_limit, soft or self.task.soft_time_limit)
        return limited

    def _decide_outcome(self, attempt: Attempt) -> Outcome | None:
        run = running.get()
        if not isinstance(run, JobRun) or run.task_id != attempt.payload.get("jid"):
            # The task ran in another process, which has been killed.
            run = JobRun(self, attempt.payload)
        if attempt.error is not None and run.state != states.FAILURE:
            # Jobs pushed here follow from this job, and not from an earlier one.
            running.set(run)
            run.end_from_outside(attempt.error)
        running.set(None)
        run.finish(attempt.error, attempt.now)
        return decide_outcome(run, attempt, self.failed_tasks)


def _signal(number: int) -> int:
    """The signal under its name, as Celery passes it; a real-time signal has none."""
    try:
        return Signals(number)
    except ValueError:
        return number
