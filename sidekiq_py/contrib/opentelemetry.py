"""
OpenTelemetry: a span for each push and each run, and one trace across languages.

    from sidekiq_py.contrib import opentelemetry

    opentelemetry.instrument()                              # in web processes and where jobs are declared

Spans, attributes, payload keys and options are those of OpenTelemetry's instrumentation for Ruby's Sidekiq. A push
writes `traceparent` (and `tracestate`) at the payload's top level. A run is its own trace that links to the push, or
with `propagation_style="child"` a child of the push.

If OpenTelemetry's instrumentation for Celery is active, this module ignores tasks, whose pushes and runs it covers.

Source: opentelemetry-ruby-contrib, instrumentation/sidekiq, middlewares/client and middlewares/server.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from random import random
from typing import Any, Literal

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

    from sidekiq_py.contrib._sampling import (
        NO_CONTEXT,
        DroppedRun,
        Sampling,
        drop,
        dropped_run_behind,
        extract,
        get_current,
        set_current,
    )
except ImportError as error:
    raise ImportError(
        "sidekiq_py.contrib.opentelemetry needs OpenTelemetry's API, which is not installed; "
        "install it with: pip install 'sidekiq-py[opentelemetry]'"
    ) from error

from sidekiq_py import program, telemetry
from sidekiq_py.contrib._tasks import class_of, is_celerys_task
from sidekiq_py.errors import ConfigError
from sidekiq_py.redaction import current
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, Measurements

SpanNaming = Literal["queue", "job_class"]
PropagationStyle = Literal["link", "child", "none"]
Payload = dict[str, Any]

_ID = "sidekiq_py.contrib.opentelemetry"
_modules = sys.modules
_CELERYS = "opentelemetry.instrumentation.celery"


def instrument(
    *,
    span_naming: SpanNaming = "queue",
    propagation_style: PropagationStyle = "link",
    peer_service: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """
    Trace pushes and runs from now on; a second call changes the options.

    Args:
        span_naming: What precedes `publish` and `process` in a span's name.
        propagation_style: How a run relates to its push: a new trace with a `link`, a `child` of the push, or `none`.
        peer_service: The attribute `peer.service`.
        tracer_provider: The provider to use instead of the global one.

    Raises:
        ConfigError: An option is invalid.
    """
    if span_naming not in ("queue", "job_class"):
        raise ConfigError(f"span_naming is {span_naming!r}; it must be 'queue' or 'job_class'")
    if propagation_style not in ("link", "child", "none"):
        raise ConfigError(f"propagation_style is {propagation_style!r}; it must be 'link', 'child' or 'none'")
    uninstrument()
    tracing = _Tracing(span_naming, propagation_style, peer_service, tracer_provider)
    program.client_middleware.prepend(tracing.publish)
    telemetry.attach(f"{_ID}: start", JOB_START.name, tracing.start)
    telemetry.attach(f"{_ID}: stop", JOB_STOP.name, tracing.stop)
    telemetry.attach(f"{_ID}: exception", JOB_EXCEPTION.name, tracing.stop)


def uninstrument() -> None:
    """Stop tracing; does nothing if tracing is off."""
    for middleware in list(program.client_middleware):
        if isinstance(getattr(middleware, "__self__", None), _Tracing):
            program.client_middleware.remove(middleware)
    for event in ("start", "stop", "exception"):
        telemetry.detach(f"{_ID}: {event}")


class _Tracing:
    """Traces pushes and runs with one set of options."""

    def __init__(
        self,
        span_naming: SpanNaming,
        propagation_style: PropagationStyle,
        peer_service: str | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        self._names_class = span_naming == "job_class"
        self._style = propagation_style
        self._is_child = propagation_style == "child"
        self._fixed = {"messaging.system": "sidekiq", "messaging.destination_kind": "queue"}
        if peer_service is not None:
            self._fixed["peer.service"] = peer_service
        self._tracer = trace.get_tracer("sidekiq_py", tracer_provider=tracer_provider)
        self._sampling = Sampling(self._tracer)
        self._fields = frozenset(propagate.get_global_textmap().fields)
        # The span of the job that runs in this thread or task and the token that detaches it; None if the trace is
        # dropped.
        self._running: ContextVar[tuple[Span, Any] | None] = ContextVar("sidekiq_otel_running", default=None)

    def publish(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Client middleware: trace a push."""
        if _is_celerys_own(payload):
            return call_next()
        parent = None
        if not trace.get_current_span().get_span_context().is_valid and not self._fields.isdisjoint(payload):
            # A due job that the poller pushes again continues the trace in which it was first pushed.
            parent = extract(payload)
        with self._tracer.start_as_current_span(
            self._name(payload, queue, "publish"), parent, SpanKind.PRODUCER, self._attributes(payload, queue)
        ) as span:
            propagate.inject(payload)
            _note_time(span, payload, "created_at")
            return call_next()

    def start(self, name: str, measurements: Measurements) -> None:
        """Begin the trace of a job that starts in this thread or task."""
        payload = measurements["payload"]
        if _CELERYS in _modules and _is_celerys_own(payload):
            self._end_leftover()
        elif self._is_child and not self._fields.isdisjoint(payload):
            if not self._sampling.drops_child(payload, self._fields):
                self._start_child(payload, measurements["queue"])
        else:
            sampling = self._sampling
            drawn = random()
            if drawn < sampling.share:
                self._start_root(payload, measurements["queue"], drawn)
            else:
                # Inlined from `drop`, because this runs for almost every job.
                before: Any = get_current()
                run = DroppedRun()
                run.before = before.before if before.__class__ is DroppedRun else before
                run.payload = payload
                run.bound = sampling.bound
                set_current(run)

    def stop(self, name: str, measurements: Measurements) -> None:
        """End the trace of the job."""
        context = get_current()
        dropped = context if context.__class__ is DroppedRun else dropped_run_behind(context)
        if dropped is not None:
            set_current(dropped.before)
        elif self._running.get() is not None:
            error = measurements.get("error")
            redacted = None if error is None else current().error(error, measurements["payload"])
            self._end(redacted, is_failure=measurements.get("is_failure", False))

    def _start_child(self, payload: Payload, queue: str) -> None:
        extracted = extract(payload)
        if not trace.get_current_span(extracted).get_span_context().is_valid:
            # The payload has no valid trace id.
            self._start_root(payload, queue, random())
            return
        self._start_span(self._tracer, payload, queue, extracted, parent=extracted)

    def _start_root(self, payload: Payload, queue: str, drawn: float) -> None:
        tracer = self._sampling.root_tracer(drawn)
        if tracer is None:
            drop(payload, self._sampling.bound)
            return
        extracted = extract(payload)
        pushed = trace.get_current_span(extracted).get_span_context()
        links = [Link(pushed)] if self._style == "link" and pushed.is_valid else []
        self._start_span(tracer, payload, queue, extracted, parent=NO_CONTEXT, links=links)

    def _start_span(
        self,
        tracer: trace.Tracer,
        payload: Payload,
        queue: str,
        extracted: Context,
        *,
        parent: Context,
        links: Sequence[Link] = (),
    ) -> None:
        self._end_leftover()
        attributes = {**self._attributes(payload, queue), "messaging.operation": "process"}
        span = tracer.start_span(self._name(payload, queue, "process"), parent, SpanKind.CONSUMER, attributes, links)
        _note_time(span, payload, "created_at")
        _note_time(span, payload, "enqueued_at")
        token = otel_context.attach(trace.set_span_in_context(span, extracted))
        self._running.set((span, token))

    def _end_leftover(self) -> None:
        """End the span of an earlier job in this thread or task whose end was never reported."""
        if self._running.get() is not None:
            self._end()

    def _end(self, error: BaseException | None = None, *, is_failure: bool = False) -> None:
        running = self._running.get()
        assert running is not None
        self._running.set(None)
        span, token = running
        otel_context.detach(token)
        if span.is_recording():
            if error is not None and is_failure:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"Unhandled exception of type: {type(error).__name__}"))
            span.end()

    def _name(self, payload: Payload, queue: str, what: str) -> str:
        return f"{class_of(payload) if self._names_class else queue} {what}"

    def _attributes(self, payload: Payload, queue: str) -> dict[str, str]:
        return {
            **self._fixed,
            "messaging.sidekiq.job_class": class_of(payload),
            "messaging.message_id": str(payload.get("jid")),
            "messaging.destination": queue,
        }


def _note_time(span: Span, payload: Mapping[str, Any], key: str) -> None:
    seconds = telemetry.epoch_seconds(payload.get(key)) if span.is_recording() else None
    # Timestamps are in nanoseconds; no exporter can handle more than 64 bits.
    if seconds is not None and 0 <= seconds * 1e9 < 2**63:
        span.add_event(key, timestamp=int(seconds * 1e9))


def _is_celerys_own(payload: Mapping[str, Any]) -> bool:
    """True for a task whose pushes and runs OpenTelemetry's instrumentation for Celery already covers."""
    instrumentation = _modules.get(_CELERYS)
    if instrumentation is None or not is_celerys_task(payload):
        return False
    return bool(instrumentation.CeleryInstrumentor().is_instrumented_by_opentelemetry)
