"""
Decides which runs are traced before creating any span. Used by `opentelemetry`, which imports OpenTelemetry first.

The SDK asks its sampler late, and creates a context that few jobs look at. A run whose trace is dropped cost 3 µs that
way, next to the 7.5 µs of a job that does nothing, and more with a `traceparent` in its payload. So this module decides
by itself, with the SDK's own rule, and creates the context of a dropped run only when the job's code looks at it.
"""

import copy
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from random import getrandbits, randrange
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from sidekiq_py.logs import log

Payload = Mapping[str, Any]

NO_CONTEXT = Context()
_ENDINGS = 2**64
# As newer releases of the SDK mark the ids of its own generator, also those of traces that are dropped.
_RANDOM = TraceFlags(getattr(TraceFlags, "RANDOM_TRACE_ID", TraceFlags.DEFAULT))

# The keys that W3C's propagators read. A `traceparent` that matches the pattern says that its trace is dropped.
_W3C = frozenset(("traceparent", "tracestate", "baggage"))
_NOT_SAMPLED = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]", re.ASCII)


class _PayloadGetter(Getter[Payload]):
    """Reads only the payload keys that hold text, because any program may have written anything there."""

    def get(self, carrier: Payload, key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Payload) -> list[str]:
        return list(carrier)


_getter = _PayloadGetter()


def extract(payload: Payload) -> Context:
    """Read the tracing context in which a payload was pushed."""
    return propagate.extract(payload, NO_CONTEXT, _getter)


class DroppedRun(Context):
    """
    The context of a run whose trace is dropped.

    To code that looks at it, it is like any other context: it has a span that records nothing, and the values that the
    payload carries, such as baggage. Most jobs never look.

    Attributes:
        before: The context to restore at the end of the run.
        payload: The parsed payload.
        bound: `Sampling.bound`, if the run is the root of its own trace; None if it continues the trace of its push.
    """

    __slots__ = ("before", "bound", "payload")

    before: Context
    bound: int | None
    payload: Payload

    def __repr__(self) -> str:
        return f"<DroppedRun {self._seen()!r}>"

    def __contains__(self, key: object) -> bool:
        return key in self._seen()

    def __eq__(self, other: object) -> bool:
        return self._seen() == other

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: str) -> object:
        return self._seen()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen())

    def __len__(self) -> int:
        return len(self._seen())

    def copy(self) -> dict[str, object]:
        return self._seen().copy()

    def get(self, key: str, default: Any = None) -> Any:
        return self._seen().get(key, default)

    def items(self) -> Any:
        return self._seen().items()

    def keys(self) -> Any:
        return self._seen().keys()

    def values(self) -> Any:
        return self._seen().values()

    def _seen(self) -> dict[str, object]:
        stored: dict[str, Any] = self
        seen = dict.get(stored, _SEEN)
        # One atomic step, so that two threads that look at the same time see the same span. `dict`'s method, because a
        # context's own methods refuse to write.
        return dict.setdefault(stored, _SEEN, self._make()) if seen is None else seen

    def _make(self) -> Context:
        try:
            extracted = extract(self.payload)
        except Exception:  # noqa: BLE001 — the program's own propagator may raise; the job's code only wanted to look
            log.exception("the tracing context of a job could not be read; the job continues without it")
            extracted = NO_CONTEXT
        pushed = trace.get_current_span(extracted).get_span_context()
        span_id = getrandbits(64) or 1
        own = (
            SpanContext(pushed.trace_id, span_id, False, pushed.trace_flags, pushed.trace_state)
            if self.bound is None
            else SpanContext(_trace_id(randrange(self.bound, _ENDINGS)), span_id, is_remote=False, trace_flags=_RANDOM)
        )
        context = otel_context.set_value(_RUN, self, extracted)
        return trace.set_span_in_context(NonRecordingSpan(own), context)


_SEEN = "sidekiq_py: what is seen of it"
# Contexts that a job's code derives from the run's context still lead back to the run by this key.
_RUN = otel_context.create_key("sidekiq_py-dropped-run")


def _accessors() -> tuple[Callable[[], Context], Callable[[Context], object]]:
    """
    The functions that get and set the current context.

    While OpenTelemetry keeps the context in a `ContextVar`, as it does now, these are the variable's own methods, which
    saves two calls each. Those calls were a quarter of the cost of a dropped run.
    """
    from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext

    runtime: Any = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if type(runtime) is ContextVarsRuntimeContext and isinstance(variable, ContextVar):
        return variable.get, variable.set
    return otel_context.get_current, otel_context.attach


get_current, set_current = _accessors()


def drop(payload: Payload, bound: int | None) -> None:
    """Make the context of a dropped run the current one. The arguments are attributes of `DroppedRun`."""
    before: Any = get_current()
    run = DroppedRun()
    # If the end of an earlier run was never reported, leave that run's context now.
    run.before = before.before if before.__class__ is DroppedRun else before
    run.payload = payload
    run.bound = bound
    set_current(run)


def dropped_run_behind(context: Context) -> DroppedRun | None:
    """The dropped run whose code has left *context* as the current one; None if there is none."""
    run = context.get(_RUN)
    return run if isinstance(run, DroppedRun) else None


def _trace_id(ending: int) -> int:
    return getrandbits(64) << 64 | ending


class _GivenIds:
    """The SDK's id generator, except that it returns a trace id that was drawn in advance."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._given = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)

    def give(self, trace_id: int) -> None:
        """Set the id of this thread's next trace."""
        self._given.trace_id = trace_id

    def generate_trace_id(self) -> int:
        """Return the id that was set."""
        return int(self._given.trace_id)


class Sampling:
    """
    Decides whether the trace of a run is kept.

    The SDK's own samplers look only at the trace's id, and at whether the parent is kept, so their decision can be made
    here. With any other sampler or generator of ids, or without an SDK, every run goes through the SDK.

    Attributes:
        share: How many of all new traces are kept: drop one if a number from `random()` is this or more, otherwise ask
            `root_tracer`. The id, which the sampler would have decided by, is drawn afterwards to fit the decision.
        bound: The id of a kept trace ends with 64 bits that are less than this.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._drops_with_parent = False
        self._kept: Any = None
        self._ids: _GivenIds | None = None
        self._has_looked = False
        self._lock = threading.Lock()
        self.share = 1.0
        self.bound = _ENDINGS

    def root_tracer(self, drawn: float) -> trace.Tracer | None:
        """
        Return the tracer that creates the root of a new trace; None if the trace is dropped after all.

        Args:
            drawn: The number that was less than `share`, which is not known before the first run.
        """
        if not self._has_looked:
            self._look()
        if drawn >= self.share:
            return None
        if self._ids is None:
            return self._tracer
        self._ids.give(_trace_id(randrange(self.bound)))
        return self._kept  # type: ignore[no-any-return]

    def drops_child(self, payload: Payload, fields: frozenset[str]) -> bool:
        """
        Returns True if the run continues the trace of its push and that trace is dropped; its context is then current.

        Args:
            fields: The keys that the propagators read.
        """
        if not self._has_looked:
            self._look()
        given = payload.get("traceparent")
        if not self._drops_with_parent or not isinstance(given, str) or not _NOT_SAMPLED.fullmatch(given):
            return False
        # Other propagators may decide differently.
        if not fields <= _W3C:
            return False
        drop(payload, None)
        return True

    def _look(self) -> None:
        # Do this once. When two threads did it at the same moment, one drew ids for a tracer that asked the other for
        # them, and for the rest of the process's life no run that should be kept had a span.
        with self._lock:
            if not self._has_looked:
                self._look_alone()

    def _look_alone(self) -> None:
        # Until the program sets a provider, the API's tracer is a proxy for the tracer that will come.
        tracer: Any = getattr(self._tracer, "_tracer", self._tracer)
        sampler = getattr(tracer, "sampler", None)
        if sampler is None:
            return
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

        self._drops_with_parent = getattr(sampler, "_remote_parent_not_sampled", None) is ALWAYS_OFF
        bound = _bound_of(sampler)
        if bound is not None and type(tracer.id_generator) is RandomIdGenerator:
            self._ids = _GivenIds(tracer.id_generator)
            self._kept = copy.copy(tracer)
            self._kept.sampler, self._kept.id_generator = ALWAYS_ON, self._ids
            # The share last: another thread uses the bound as soon as it reads a share that drops a trace.
            self.bound = bound
            self.share = bound / _ENDINGS
        self._has_looked = True


def _bound_of(sampler: Any) -> int | None:
    """The bound of a sampler that looks at nothing else; None for any other, and for one that keeps everything."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, ParentBasedTraceIdRatio, TraceIdRatioBased

    if type(sampler) in (ParentBased, ParentBasedTraceIdRatio):
        sampler = getattr(sampler, "_root", None)
    if sampler is ALWAYS_OFF:
        return 0
    return sampler.bound if type(sampler) is TraceIdRatioBased else None
