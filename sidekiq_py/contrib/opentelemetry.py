"""
OpenTelemetry: a span for each push and each run, and one trace across languages.

    from sidekiq_py.contrib import opentelemetry

    opentelemetry.instrument()                              # in web processes and where jobs are declared

Spans, attributes and the keys in the payload are those of OpenTelemetry's instrumentation for Ruby's Sidekiq, and so
are the options: a push writes `traceparent` (and `tracestate`) at the payload's top level, and a run is a trace of its
own that links to the push, or with `propagation_style="child"` a child of it.

Where Celery's own instrumentation is on, nothing is done for tasks: it covers their pushes and runs.

Source: opentelemetry-ruby-contrib, instrumentation/sidekiq, middlewares/client and middlewares/server.
"""

import copy
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from random import getrandbits
from typing import Any, Literal

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(
        "sidekiq_py.contrib.opentelemetry needs OpenTelemetry's API, which is not installed; "
        "install it with: pip install 'sidekiq-py[opentelemetry]'"
    ) from error

from sidekiq_py import program, telemetry
from sidekiq_py.contrib._tasks import is_celerys_task
from sidekiq_py.errors import ConfigError
from sidekiq_py.redaction import current
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, Measurements

SpanNaming = Literal["queue", "job_class"]
PropagationStyle = Literal["link", "child", "none"]
Payload = dict[str, Any]

_ID = "sidekiq_py.contrib.opentelemetry"
_NO_CONTEXT = Context()
_LAST_64_BITS = 0xFFFFFFFFFFFFFFFF


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
        span_naming: What stands before `publish` and `process` in a span's name.
        propagation_style: How a run hangs on its push: a `link` from a trace of its own, a `child` of it, or not.
        peer_service: The attribute `peer.service`.
        tracer_provider: Instead of the global one.

    Raises:
        ConfigError: An option is unusable.
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
    """Trace no more; nothing happens if nothing is traced."""
    for middleware in list(program.client_middleware):
        if isinstance(getattr(middleware, "__self__", None), _Tracing):
            program.client_middleware.remove(middleware)
    for event in ("start", "stop", "exception"):
        telemetry.detach(f"{_ID}: {event}")


class _PayloadGetter(Getter[Mapping[str, Any]]):
    """Reads the keys of a payload that hold text: strangers may write anything there."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


_getter = _PayloadGetter()


class _Tracing:
    """One set of options at work."""

    def __init__(
        self,
        span_naming: SpanNaming,
        propagation_style: PropagationStyle,
        peer_service: str | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        self._names_class = span_naming == "job_class"
        self._style = propagation_style
        self._fixed = {"messaging.system": "sidekiq", "messaging.destination_kind": "queue"}
        if peer_service is not None:
            self._fixed["peer.service"] = peer_service
        self._tracer = trace.get_tracer("sidekiq_py", tracer_provider=tracer_provider)
        self._roots = _Roots(self._tracer)
        self._fields = propagate.get_global_textmap().fields
        # The span of the job that runs in this thread or task, and what detaches it.
        self._running: ContextVar[tuple[Span, Any] | None] = ContextVar("sidekiq_otel_running", default=None)

    def publish(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Client middleware: a push."""
        if _is_celerys_own(payload):
            return call_next()
        parent = None
        if not trace.get_current_span().get_span_context().is_valid and not self._fields.isdisjoint(payload):
            # A due job that the poller pushes again goes on in the trace in which it was first pushed.
            parent = propagate.extract(payload, _NO_CONTEXT, _getter)
        with self._tracer.start_as_current_span(
            self._name(payload, queue, "publish"), parent, SpanKind.PRODUCER, self._attributes(payload, queue)
        ) as span:
            propagate.inject(payload)
            _note_time(span, payload, "created_at")
            return call_next()

    def start(self, name: str, measurements: Measurements) -> None:
        """A job starts in this thread or task."""
        payload, queue = measurements["payload"], measurements["queue"]
        if self._running.get() is not None:
            # The job before it came to no end that anybody was told of.
            self._end()
        if _is_celerys_own(payload):
            return
        if self._fields.isdisjoint(payload):
            extracted, pushed = _NO_CONTEXT, trace.INVALID_SPAN_CONTEXT
        else:
            extracted = propagate.extract(payload, _NO_CONTEXT, _getter)
            pushed = trace.get_current_span(extracted).get_span_context()
        is_child = self._style == "child" and pushed.is_valid
        span: Span | None = None if is_child else self._roots.dropped()
        if span is None:
            span = self._span_of_run(payload, queue, extracted, pushed, is_child=is_child)
        token = otel_context.attach(trace.set_span_in_context(span, extracted))
        self._running.set((span, token))

    def stop(self, name: str, measurements: Measurements) -> None:
        """It has ended."""
        if self._running.get() is not None:
            error = measurements.get("error")
            told = None if error is None else current().error(error, measurements["payload"])
            self._end(told, is_failure=measurements.get("is_failure", False))

    def _span_of_run(
        self, payload: Payload, queue: str, extracted: Context, pushed: SpanContext, *, is_child: bool
    ) -> Span:
        tracer = self._tracer if is_child else self._roots.tracer
        attributes = {**self._attributes(payload, queue), "messaging.operation": "process"}
        links = [Link(pushed)] if self._style == "link" and pushed.is_valid else []
        parent = extracted if is_child else _NO_CONTEXT
        span = tracer.start_span(self._name(payload, queue, "process"), parent, SpanKind.CONSUMER, attributes, links)
        _note_time(span, payload, "created_at")
        _note_time(span, payload, "enqueued_at")
        return span

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
        return f"{_class_of(payload) if self._names_class else queue} {what}"

    def _attributes(self, payload: Payload, queue: str) -> dict[str, str]:
        return {
            **self._fixed,
            "messaging.sidekiq.job_class": _class_of(payload),
            "messaging.message_id": str(payload.get("jid")),
            "messaging.destination": queue,
        }


class _Dropped(trace.NonRecordingSpan):
    """The root of a trace that nobody keeps. Most have no child and push nothing, so nobody asks for its ids."""

    def __init__(self, trace_id: int, ids: Any) -> None:
        self._trace_id = trace_id
        self._ids = ids
        self._made: SpanContext | None = None

    def __repr__(self) -> str:
        return f"<_Dropped {self._trace_id:032x}>"

    def get_span_context(self) -> SpanContext:
        if self._made is None:
            self._made = SpanContext(self._trace_id, self._ids.generate_span_id(), is_remote=False)
        return self._made


class _GivenIds:
    """The ids of the SDK's generator, but for the trace's own, which was drawn from it before."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._given = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)

    def give(self, trace_id: int) -> None:
        """The next trace of this thread has this id."""
        self._given.trace_id = trace_id

    def generate_trace_id(self) -> int:
        """The id that was given."""
        return int(self._given.trace_id)


class _Roots:
    """
    Decides whether a new trace is kept, before anything is made of it.

    The SDK asks its sampler late: a run whose trace is dropped cost 6 µs, a third of a job that does nothing. The SDK's
    own samplers look at the trace's id alone. So for these the decision is taken here, by the same rule, and the SDK is
    told of a trace that is kept. With any other sampler, or without an SDK, each trace goes the SDK's way.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._ids: Any = None
        self._new_trace_id: Callable[[], int] = lambda: 0
        # Of the last 64 bits of a trace's id: what is not below it is dropped. None: the SDK decides.
        self._bound: int | None = None
        self._kept: Any = None
        self._given: Any = None
        self._has_looked = False

    def dropped(self) -> _Dropped | None:
        """The root of a new trace, if that is dropped; None: ask `tracer` for it."""
        if not self._has_looked:
            self._look()
        if self._bound is None:
            return None
        trace_id = self._new_trace_id()
        if trace_id & _LAST_64_BITS >= self._bound:
            return _Dropped(trace_id, self._ids)
        self._given.give(trace_id)
        return None

    @property
    def tracer(self) -> trace.Tracer:
        """Makes the root of a trace that `dropped` has just let pass."""
        return self._kept or self._tracer

    def _look(self) -> None:
        # Before the program has set a provider, the API's tracer stands for the one that is to come.
        tracer: Any = getattr(self._tracer, "_tracer", self._tracer)
        sampler = getattr(tracer, "sampler", None)
        if sampler is None:
            return
        self._has_looked = True
        self._bound = _bound_of(sampler)
        if self._bound is not None:
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON

            self._ids = tracer.id_generator
            self._new_trace_id = _trace_ids_of(self._ids)
            self._given = _GivenIds(self._ids)
            self._kept = copy.copy(tracer)
            self._kept.sampler, self._kept.id_generator = ALWAYS_ON, self._given


def _trace_ids_of(ids: Any) -> Callable[[], int]:
    """What draws a trace's id: of the SDK's own generator the draw itself, which is never 0 in a universe's life."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    if type(ids) is RandomIdGenerator:
        return partial(getrandbits, 128)
    return ids.generate_trace_id  # type: ignore[no-any-return]


def _bound_of(sampler: Any) -> int | None:
    """See `_Roots`; None for a sampler that may look at something else, or keeps all."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, ParentBasedTraceIdRatio, TraceIdRatioBased

    if type(sampler) in (ParentBased, ParentBasedTraceIdRatio):
        sampler = getattr(sampler, "_root", None)
    if sampler is ALWAYS_OFF:
        return 0
    return sampler.bound if type(sampler) is TraceIdRatioBased else None


def _class_of(payload: Mapping[str, Any]) -> str:
    return str(payload.get("wrapped") or payload.get("class"))


def _note_time(span: Span, payload: Mapping[str, Any], key: str) -> None:
    seconds = telemetry.epoch_seconds(payload.get(key)) if span.is_recording() else None
    # Nanoseconds; beyond 64 bits no exporter could make anything of them.
    if seconds is not None and 0 <= seconds * 1e9 < 2**63:
        span.add_event(key, timestamp=int(seconds * 1e9))


def _is_celerys_own(payload: Mapping[str, Any]) -> bool:
    """A task, where OpenTelemetry's instrumentation of Celery is on, which sees pushes and runs of `sidekiq_celery`."""
    instrumentation = sys.modules.get("opentelemetry.instrumentation.celery")
    if instrumentation is None or not is_celerys_task(payload):
        return False
    return bool(instrumentation.CeleryInstrumentor().is_instrumented_by_opentelemetry)
