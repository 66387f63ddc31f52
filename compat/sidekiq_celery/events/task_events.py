"""The events that a worker's process sends about the tasks it runs."""

import os
import time
from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery._send.running_task import RunDetails
from sidekiq_celery._wire.printed_call import printed_call
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import Reject, Retry, TaskRevokedError
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_celery.utils.saferepr import saferepr
from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_celery.utils.text import abbr
from sidekiq_celery.utils.time import utcoffset
from sidekiq_py.errors import TerminatedError
from sidekiq_py.redaction import current

if TYPE_CHECKING:
    from sidekiq_celery.events.outbox import Outbox

_REPR_CHARACTERS = 1024
_PATIENCE_SECONDS = 1.0


class TaskEvents:
    """
    Sends task events from one process. They go to its outbox, so no task waits for Redis.

    Args:
        app: The app that has the tasks.
        hostname: The worker's name.
        is_on: Send events from the start.

    Attributes:
        is_on: True while events are sent. Callers check it first, and do nothing more if it is false.
    """

    __slots__ = ("_app", "_hostname", "_outbox", "_serializer", "is_on")

    def __init__(self, app: App, hostname: str, *, is_on: bool = False) -> None:
        self._app = app
        self._hostname = hostname
        self._outbox: Outbox | None = None
        self._serializer: str = app.conf.event_serializer
        self.is_on = False
        if is_on:
            self.turn_on()

    def turn_on(self) -> None:
        """Start sending events."""
        from sidekiq_celery.events.clock import keep_up
        from sidekiq_celery.events.outbox import outbox_of

        if self._outbox is None:
            keep_up(self._app)
            self._outbox = outbox_of(self._app)
        self.is_on = True

    def turn_off(self) -> None:
        """Stop sending events."""
        self.is_on = False

    def close(self) -> None:
        """Send what is left, for a few seconds at most, as the process is ending."""
        from sidekiq_celery.events.outbox import close_all

        close_all()

    # ---- a task's events

    def received(self, run: RunDetails) -> None:
        """A process has fetched the task to run it."""
        if not run.plan.task.send_events:
            return
        request = run.request
        # The wire has no tuples, but `delay` passes one.
        args, kwargs = printed_call(run.plan.task.name, request, tuple(run.args or ()), run.kwargs)
        self._send(
            "task-received",
            run.task_id,
            name=request.shadow or run.plan.task.name,
            args=abbr(args, _REPR_CHARACTERS),
            kwargs=abbr(kwargs, _REPR_CHARACTERS),
            root_id=request.root_id,
            parent_id=request.parent_id,
            retries=request.retries or 0,
            eta=_iso(request.eta),
            expires=_iso(request.expires),
        )

    def started(self, run: RunDetails) -> None:
        """The task has started."""
        if run.plan.task.send_events:
            self._send("task-started", run.task_id)

    def ended(self, run: RunDetails, error: BaseException | None) -> None:
        """
        The task's run has ended.

        Args:
            error: The error with which the engine ended it, if any.
        """
        task, value = run.plan.task, run.retval
        if not task.send_events:
            return
        if run.state == states.SUCCESS:
            returned = current().part({"class": task.name, "result": value}, "result")
            shown = saferepr(returned, task.resultrepr_maxsize)
            self._send("task-succeeded", run.task_id, result=shown, runtime=run.runtime)
        elif run.state == states.RETRY:
            reason = value.exc if isinstance(value, Retry) else value
            self._send("task-retried", run.task_id, **_error_fields(reason, run))
            self._precede_the_next_try(run)
        elif run.state == states.REVOKED:
            self._send("task-revoked", run.task_id, **_why_revoked(value, error))
        elif run.state == states.REJECTED:
            self._rejected(run)
        elif run.state == states.FAILURE:
            self._send("task-failed", run.task_id, **_error_fields(value, run))

    def _rejected(self, run: RunDetails) -> None:
        requeue = isinstance(run.retval, Reject) and bool(run.retval.requeue)
        if not requeue:
            # The task never runs again, and monitors have no other word for that.
            self._send("task-failed", run.task_id, **_error_fields(run.retval, run))
        if requeue or run.plan.task.acks_late:
            # As in Celery, where the message of another task has been acknowledged and can no longer be rejected.
            self._send("task-rejected", run.task_id, requeue=requeue)

    def _precede_the_next_try(self, run: RunDetails) -> None:
        """
        Let the event out before the next try. Another process may run the task at once and send its events earlier. Of
        all events that may arrive late, this is the only one that monitors take for the task's final state.
        """
        soon = time.time() + 1
        is_soon = any(job.score is None or float(job.score) < soon for job in run.again)
        if self._outbox is not None and is_soon:
            self._outbox.send_before(_PATIENCE_SECONDS)

    def _send(self, kind: str, task_id: str, **fields: Any) -> None:
        outbox = self._outbox
        if outbox is None:
            return
        event = {
            "hostname": self._hostname,
            "utcoffset": utcoffset(),
            "pid": os.getpid(),
            "clock": self._app.clock.forward(),
            "uuid": task_id,
            **fields,
            "timestamp": time.time(),
            "type": kind,
        }
        outbox.put(event, self._hostname, self._serializer)


def _error_fields(error: Any, run: RunDetails) -> dict[str, Any]:
    if run.is_unknown:
        # Celery's text, which is not the error's.
        return {"exception": f"NotRegistered({run.plan.task.name!r})"}
    einfo = run.einfo
    if isinstance(error, BaseException):
        redacted = current().error(error, {"class": run.plan.task.name})
        if redacted is not error:
            error, einfo = redacted, ExceptionInfo((type(redacted), redacted, redacted.__traceback__))
    return {"exception": safe_repr(error), "traceback": None if einfo is None else str(einfo.traceback)}


def _why_revoked(reason: Any, error: BaseException | None) -> dict[str, Any]:
    why = str(reason.args[0]) if isinstance(reason, TaskRevokedError) and reason.args else ""
    signum = error.signal_number if isinstance(error, TerminatedError) else None
    return {"terminated": why == "terminated", "signum": signum, "expired": why == "expired"}


def _iso(when: Any) -> Any:
    return when.isoformat() if hasattr(when, "isoformat") else when
