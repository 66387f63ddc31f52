"""
Sentry: reports errors with the context of their job, and continues traces from one language to the other.

    import sentry_sdk
    from sidekiq_py.contrib import sentry

    sentry_sdk.init(dsn=…, traces_sample_rate=0.1)
    sentry.instrument()                                     # in web processes and where jobs are declared

A push writes `trace_propagation_headers` into the payload as the gem sentry-sidekiq does, and a run is a transaction
`Sidekiq/<class>` of the same trace. Keys that the gem writes are read, including `sentry_user`. Arguments are sent
with the job only on request. Variables of stack frames, which Sentry's SDK sends unless it is given
`include_local_variables=False`, may contain them too.

If Sentry's integration for Celery is active, this module ignores tasks, whose runs and errors it covers.

Source: sentry-ruby, sentry-sidekiq, sentry_context_middleware.rb and error_handler.rb.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from time import time
from typing import Any

try:
    import sentry_sdk
except ImportError as error:
    raise ImportError(
        "sidekiq_py.contrib.sentry needs Sentry's SDK, which is not installed; "
        "install it with: pip install 'sidekiq-py[sentry]'"
    ) from error

from sidekiq_py import program, telemetry
from sidekiq_py.contrib._tasks import class_of, is_celerys_task
from sidekiq_py.redaction import ARGUMENT_COPIES, REDACTED, Redaction, current, names_of
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, Measurements, latency_seconds

Payload = dict[str, Any]

HEADERS = "trace_propagation_headers"
USER = "sentry_user"
_ID = "sidekiq_py.contrib.sentry"
_ORIGIN = "auto.queue.sidekiq"
# A task of `sidekiq_celery` may have arguments of its own, and those of its callbacks, under the key `celery`.
_ARGUMENTS = frozenset(("args", "celery", *ARGUMENT_COPIES))
# Payload keys that are not sent: those that may contain the program's data, and those that are sent in other ways.
_NOT_SENT = _ARGUMENTS | {USER, HEADERS, "error_backtrace"}


def instrument(*, report_after_retries: bool = False, send_arguments: bool = False) -> None:
    """
    Report errors and trace jobs from now on; a second call changes the options. The program calls `sentry_sdk.init`
    itself, before or after this.

    Args:
        report_after_retries: True to report only the last failure of a job that has a number of retries; the gem's
            `report_after_job_retries`.
        send_arguments: True to send the arguments of jobs to Sentry, as the gem does; they may contain personal data.
    """
    uninstrument()
    reporting = _Reporting(report_after_retries=report_after_retries, send_arguments=send_arguments)
    program.client_middleware.add(reporting.publish)
    program.on_error(reporting.report)
    telemetry.attach(f"{_ID}: start", JOB_START.name, reporting.start)
    telemetry.attach(f"{_ID}: stop", JOB_STOP.name, reporting.stop)
    telemetry.attach(f"{_ID}: exception", JOB_EXCEPTION.name, reporting.fail)


def uninstrument() -> None:
    """Stop reporting; does nothing if reporting is off."""
    for middleware in list(program.client_middleware):
        reporting = getattr(middleware, "__self__", None)
        if isinstance(reporting, _Reporting):
            reporting.is_on = False
            program.client_middleware.remove(middleware)
    for event in ("start", "stop", "exception"):
        telemetry.detach(f"{_ID}: {event}")


class _Reporting:
    """Reports errors and traces jobs with one set of options."""

    def __init__(self, *, report_after_retries: bool, send_arguments: bool) -> None:
        self.is_on = True
        self._not_sent = _NOT_SENT - _ARGUMENTS if send_arguments else _NOT_SENT
        self._after_retries = report_after_retries
        # The scope and the transaction of the job that runs in this thread or task.
        self._open: ContextVar[tuple[ExitStack, Any] | None] = ContextVar("sidekiq_sentry_open", default=None)
        # The failure of the job that has just ended here, which has been handled: reported, or deliberately not.
        self._seen: ContextVar[BaseException | None] = ContextVar("sidekiq_sentry_seen", default=None)

    def publish(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Client middleware: trace a push."""
        if not sentry_sdk.is_initialized() or _is_celerys_own(payload):
            return call_next()
        if HEADERS not in payload:
            # A due job that the poller pushes again continues the trace in which it was first pushed.
            headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
            payload[HEADERS] = {name: value for name, value in headers.items() if value}
        with sentry_sdk.start_span(op="queue.publish", name=class_of(payload), origin=_ORIGIN) as span:
            span.set_data("messaging.message.id", payload.get("jid"))
            span.set_data("messaging.destination.name", queue)
            return call_next()

    def start(self, name: str, measurements: Measurements) -> None:
        """Open the scope and the transaction of a job that starts in this thread or task."""
        payload, queue = measurements["payload"], measurements["queue"]
        self._close("ok")
        self._seen.set(None)
        if not sentry_sdk.is_initialized() or _is_celerys_own(payload):
            return
        with ExitStack() as opened:
            scope = opened.enter_context(sentry_sdk.isolation_scope())
            self._describe(scope, payload, queue)
            transaction = sentry_sdk.continue_trace(
                _headers_of(payload),
                op="queue.process",
                name=f"Sidekiq/{class_of(payload)}",
                source="task",
                origin=_ORIGIN,
            )
            run = opened.enter_context(sentry_sdk.start_transaction(transaction))
            run.set_data("messaging.message.id", payload.get("jid"))
            run.set_data("messaging.destination.name", queue)
            run.set_data("messaging.message.retry.count", payload.get("retry_count") or 0)
            latency = latency_seconds(payload, time())
            if latency is not None:
                run.set_data("messaging.message.receive.latency", int(latency * 1000))
            self._open.set((opened.pop_all(), run))

    def stop(self, name: str, measurements: Measurements) -> None:
        """Close the transaction of a job that succeeded."""
        self._close("ok")

    def fail(self, name: str, measurements: Measurements) -> None:
        """Report the error of a job that raised, and close its transaction."""
        if self._open.get() is None:
            return
        error, payload = measurements["error"], measurements["payload"]
        self._seen.set(error)
        is_reported = measurements["is_failure"] and not (self._after_retries and _is_tried_again(payload))
        if is_reported:
            # Report here and not in an error handler, because here the job's scope and trace are still open.
            sentry_sdk.capture_exception(error)
        self._close("internal_error" if measurements["is_failure"] else "cancelled")

    def report(self, error: BaseException, context: dict[str, Any]) -> None:
        """Error handler: report everything else that goes wrong in a worker, and jobs whose process was killed."""
        if not self.is_on or not sentry_sdk.is_initialized() or error is self._seen.get():
            return
        payload = context.get("job")
        if isinstance(payload, dict) and _is_celerys_own(payload):
            return
        with sentry_sdk.isolation_scope() as scope:
            if isinstance(payload, dict):
                self._describe(scope, payload, str(payload.get("queue")))
                scope.set_transaction_name(f"Sidekiq/{class_of(payload)}", source="task")
            scope.set_extra("context", context.get("context"))
            sentry_sdk.capture_exception(error)

    def _describe(self, scope: "sentry_sdk.Scope", payload: Payload, queue: str) -> None:
        """Add what the gem says about a job, without the values that the program hides."""
        policy = current()
        scope.add_event_processor(lambda event, hint: _redacted(event, policy, payload))
        payload = policy.apply(payload)
        user = payload.get(USER)
        if isinstance(user, dict):
            scope.set_user(user)
        scope.set_tag("queue", queue)
        scope.set_tag("jid", str(payload.get("jid")))
        tags = payload.get("tags")
        for tag in tags if isinstance(tags, list) else ():
            scope.set_tag(f"sidekiq.{tag}", "true")
        sent = {key: value for key, value in payload.items() if key not in self._not_sent}
        scope.set_context("sidekiq", {**sent, "queue": queue})

    def _close(self, status: str) -> None:
        found = self._open.get()
        if found is None:
            return
        self._open.set(None)
        opened, run = found
        run.set_status(status)
        opened.close()


def _redacted(event: Any, policy: Redaction, payload: Payload) -> Any:
    """*event* without the values that are hidden in this job: error messages, and variables in stack frames."""
    for error in (event.get("exception") or {}).get("values") or ():
        if policy.hides_errors(payload):
            error["value"] = REDACTED
        for frame in (error.get("stacktrace") or {}).get("frames") or ():
            if policy.hides_arguments(payload):
                frame.pop("vars", None)
            elif "vars" in frame:
                frame["vars"] = policy.value(frame["vars"], *names_of(payload))
    return event


def _headers_of(payload: Payload) -> dict[str, Any]:
    """The headers that a push of either language wrote; any program may have written anything there."""
    headers = payload.get(HEADERS)
    return {key: value for key, value in headers.items() if isinstance(value, str)} if isinstance(headers, dict) else {}


def _is_tried_again(payload: Mapping[str, Any]) -> bool:
    """True if the job will be retried. As in the gem, only a job with a number of retries counts."""
    retries, count = payload.get("retry"), payload.get("retry_count")
    if type(retries) is not int or retries <= 0:
        return False
    return type(count) is not int or count < retries - 1


def _is_celerys_own(payload: Mapping[str, Any]) -> bool:
    """True for a task whose runs Sentry's integration for Celery already covers."""
    return is_celerys_task(payload) and sentry_sdk.get_client().get_integration("celery") is not None
