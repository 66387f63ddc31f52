"""Spans of pushes and runs, exported by OpenTelemetry's own SDK."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry")

import redis
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import sidekiq_py as sidekiq
from sidekiq_py import telemetry
from sidekiq_py.contrib import opentelemetry
from sidekiq_py.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_program")

WorkOff = Callable[..., None]

# As opentelemetry-instrumentation-sidekiq writes it: its client middleware adds its keys before `enqueued_at`.
RUBYS_TRACE, RUBYS_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FROM_RUBY = (
    '{"retry":true,"queue":"default","args":[7],"class":"Charge","jid":"b4a577edbccf1d805744efa9",'
    '"created_at":1763800000.5,"traceparent":"00-%s-%s-%s","tracestate":"shop=1","enqueued_at":1763800001.5}'
)


class Traced:
    """The finished spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    def instrument(self, sampler: Sampler | None = None, **options: Any) -> TracerProvider:
        """Trace with this test's own provider."""
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        opentelemetry.instrument(tracer_provider=provider, **options)
        return provider

    def span(self, name: str) -> ReadableSpan:
        """The span with this name."""
        [found] = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Traces until the test ends."""
    yield Traced()
    opentelemetry.uninstrument()


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The ids of the trace and the span."""
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def queued(client: "redis.Redis[bytes]", queue: str) -> dict[str, Any]:
    """The only job in a queue."""
    [raw] = client.lrange(f"queue:{queue}", 0, -1)
    job: dict[str, Any] = json.loads(raw)
    return job


def test_one_trace_runs_from_ruby_through_python_to_ruby(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """Each span is a child of the one before, across both languages."""
    traced.instrument(propagation_style="child")
    receipt = sidekiq.ruby_job("Receipt", queue="ruby")

    @sidekiq.job(name="Charge")
    def charge(number: int) -> None:
        receipt.perform_async(number)

    redis_client.lpush("queue:default", FROM_RUBY % (RUBYS_TRACE, RUBYS_SPAN, "01"))

    work_off(1)

    run, push = traced.span("default process"), traced.span("ruby publish")
    assert ids(run)[0] == ids(push)[0] == RUBYS_TRACE
    assert f"{run.parent.span_id:016x}" == RUBYS_SPAN
    assert push.parent.span_id == run.context.span_id
    to_ruby = queued(redis_client, "ruby")
    assert to_ruby["traceparent"] == f"00-{RUBYS_TRACE}-{ids(push)[1]}-01"
    assert to_ruby["tracestate"] == "shop=1"
    assert list(to_ruby)[-3:] == ["traceparent", "tracestate", "enqueued_at"]


def test_a_run_links_to_its_push_by_default(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """As in Ruby, the run is its own trace."""
    traced.instrument()
    sidekiq.job(name="Charge")(lambda number: None)
    redis_client.lpush("queue:default", FROM_RUBY % (RUBYS_TRACE, RUBYS_SPAN, "01"))

    work_off(1)

    run = traced.span("default process")
    assert run.parent is None
    assert ids(run)[0] != RUBYS_TRACE
    [link] = run.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (RUBYS_TRACE, RUBYS_SPAN)


def test_spans_say_what_rubys_say(traced: Traced, work_off: WorkOff) -> None:
    """Names, kinds, attributes and events are the same; arguments are not included."""
    traced.instrument(peer_service="jobs")
    jid = sidekiq.job(name="Charge")(lambda number: None).perform_async(1)

    work_off(1)

    attributes = {
        "messaging.system": "sidekiq",
        "messaging.sidekiq.job_class": "Charge",
        "messaging.message_id": jid,
        "messaging.destination": "default",
        "messaging.destination_kind": "queue",
        "peer.service": "jobs",
    }
    push, run = traced.span("default publish"), traced.span("default process")
    assert (push.kind, dict(push.attributes)) == (SpanKind.PRODUCER, attributes)
    assert (run.kind, dict(run.attributes)) == (SpanKind.CONSUMER, {**attributes, "messaging.operation": "process"})
    assert [event.name for event in push.events] == ["created_at"]
    assert [event.name for event in run.events] == ["created_at", "enqueued_at"]
    assert 0 <= run.start_time - run.events[1].timestamp < 60e9


def test_an_active_job_is_named_by_its_own_class(traced: Traced, work_off: WorkOff) -> None:
    """With `span_naming="job_class"`."""
    traced.instrument(span_naming="job_class")
    sidekiq.Client().push({"class": "Sidekiq::ActiveJob::Wrapper", "wrapped": "MailJob", "args": [{}]})

    assert traced.span("MailJob publish").attributes["messaging.sidekiq.job_class"] == "MailJob"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure_stands_in_its_span(traced: Traced, work_off: WorkOff, *, is_async: bool) -> None:
    """With the exception; also for an `async def` job."""
    traced.instrument()

    async def afail() -> None:
        raise KeyError("on purpose")

    def fail() -> None:
        raise KeyError("on purpose")

    sidekiq.job(name="Charge", retry=False)(afail if is_async else fail).perform_async()

    work_off(1)

    run = traced.span("default process")
    assert (run.status.status_code, run.status.description) == (
        StatusCode.ERROR,
        "Unhandled exception of type: KeyError",
    )
    assert run.events[-1].attributes["exception.type"] == "KeyError"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_job_does_belongs_to_its_span(traced: Traced, work_off: WorkOff, *, is_async: bool) -> None:
    """Spans that libraries create during the job, and baggage that came with it."""
    provider = traced.instrument()
    tracer = provider.get_tracer("app")
    seen: list[object] = []

    def work() -> None:
        seen.append(baggage.get_baggage("tenant"))
        with tracer.start_as_current_span("query"):
            pass

    async def awork() -> None:
        work()

    job = sidekiq.job(name="Charge")(awork if is_async else work)
    token = context.attach(baggage.set_baggage("tenant", "five"))
    job.perform_async()
    context.detach(token)

    work_off(1)

    assert traced.span("query").parent.span_id == traced.span("default process").context.span_id
    assert seen == ["five"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_due_job_stays_in_the_trace_of_its_push(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """The poller pushes it once more, in a thread without a span."""
    traced.instrument(propagation_style="child")
    sidekiq.job(name="Charge")(lambda: None).perform_in(0.05)

    work_off(1)

    traces = {ids(span)[0] for span in traced.exporter.get_finished_spans()}
    names = [span.name for span in traced.exporter.get_finished_spans()]
    assert (names, len(traces)) == (["default publish", "default publish", "default process"], 1)


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF), ParentBased(TraceIdRatioBased(0.0))])
def test_a_dropped_trace_is_dropped_as_a_whole(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]", sampler: Sampler
) -> None:
    """What the job does and pushes is not sampled again, and Ruby gets the decision, too."""
    provider = traced.instrument(sampler)
    tracer = provider.get_tracer("app")
    receipt = sidekiq.ruby_job("Receipt", queue="ruby")
    seen: list[str] = []

    @sidekiq.job(name="Charge")
    def charge() -> None:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
        with tracer.start_as_current_span("query"):
            receipt.perform_async(1)

    charge.perform_async()

    work_off(1)

    assert traced.exporter.get_finished_spans() == ()
    _, trace_id, span_id, flags = queued(redis_client, "ruby")["traceparent"].split("-")
    assert [trace_id] == seen
    assert int(trace_id, 16)
    assert int(span_id, 16)
    # The second bit says that the id is random.
    assert int(flags, 16) & 1 == 0


class CountingPropagator(TraceContextTextMapPropagator):
    """W3C's propagator, which counts how often it was used."""

    def __init__(self) -> None:
        self.asked = 0

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> context.Context:
        """As W3C's propagator does."""
        self.asked += 1
        return super().extract(carrier, context, getter)


@pytest.fixture
def propagator() -> Iterator[CountingPropagator]:
    """The propagator that reads contexts until the test ends."""
    before, counting = propagate.get_global_textmap(), CountingPropagator()
    propagate.set_global_textmap(counting)
    yield counting
    propagate.set_global_textmap(before)


@pytest.mark.parametrize(
    ("style", "flags", "sampler"), [("link", "01", ALWAYS_OFF), ("child", "00", ParentBased(ALWAYS_ON))]
)
def test_of_a_dropped_run_nothing_is_made_unless_its_code_looks(
    traced: Traced,
    work_off: WorkOff,
    redis_client: "redis.Redis[bytes]",
    propagator: CountingPropagator,
    style: str,
    flags: str,
    sampler: Sampler,
) -> None:
    """Most jobs do not use the current span, and reading the context of a push takes longer than they run."""
    traced.instrument(sampler, propagation_style=style)
    sidekiq.job(name="Charge")(lambda number: None)
    redis_client.lpush("queue:default", FROM_RUBY % (RUBYS_TRACE, RUBYS_SPAN, flags))

    work_off(1)

    assert propagator.asked == 0
    assert traced.exporter.get_finished_spans() == ()


def test_a_child_of_a_dropped_push_stays_in_its_trace(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """Its code and Ruby see that trace, with a span id of the run's own."""
    traced.instrument(propagation_style="child")
    receipt = sidekiq.ruby_job("Receipt", queue="ruby")
    seen: list[trace.SpanContext] = []

    @sidekiq.job(name="Charge")
    def charge(number: int) -> None:
        seen.extend([trace.get_current_span().get_span_context() for _ in range(2)])
        receipt.perform_async(number)

    redis_client.lpush("queue:default", FROM_RUBY % (RUBYS_TRACE, RUBYS_SPAN, "00"))

    work_off(1)

    assert traced.exporter.get_finished_spans() == ()
    assert seen[0] == seen[1]
    assert f"{seen[0].trace_id:032x}" == RUBYS_TRACE
    assert f"{seen[0].span_id:016x}" != RUBYS_SPAN
    assert queued(redis_client, "ruby")["traceparent"][:36] == f"00-{RUBYS_TRACE}-"
    assert queued(redis_client, "ruby")["traceparent"][-2:] == "00"
    assert queued(redis_client, "ruby")["tracestate"] == "shop=1"


def test_each_dropped_run_has_an_id_that_outlives_it(traced: Traced, work_off: WorkOff) -> None:
    """A thread that was given its context may look after the job has ended, when other jobs have run."""
    traced.instrument(ALWAYS_OFF)
    kept: list[context.Context] = []
    job = sidekiq.job(name="Charge")(lambda: kept.append(context.get_current()))
    for _ in range(3):
        job.perform_async()

    work_off(3)

    first_look, second_look = ([trace.get_current_span(one).get_span_context() for one in kept] for _ in range(2))
    assert first_look == second_look
    assert len({one.trace_id for one in first_look}) == 3
    assert [(one.is_valid, one.trace_flags.sampled) for one in first_look] == [(True, False)] * 3


def test_the_id_of_a_dropped_run_is_marked_as_the_sdk_marks_its_own(traced: Traced, work_off: WorkOff) -> None:
    """Such as random: a job that it pushes tells other programs so."""
    tracer = traced.instrument(ALWAYS_OFF).get_tracer("shop")
    seen: list[trace.SpanContext] = []
    job = sidekiq.job(name="Charge")(lambda: seen.append(trace.get_current_span().get_span_context()))
    job.perform_async()

    work_off(1)

    assert [one.trace_flags for one in seen] == [tracer.start_span("its own").get_span_context().trace_flags]


@pytest.mark.parametrize("keeps", ["nothing", "a context", "what it saw"])
def test_between_dropped_runs_the_context_is_that_of_before(traced: Traced, work_off: WorkOff, keeps: str) -> None:
    """What the worker does in between belongs to no job, even if a job's code kept its context."""
    traced.instrument(ALWAYS_OFF)
    kept: list[object] = []
    between: list[object] = []
    telemetry.attach("look", "sidekiq.settle", lambda name, _: between.append(dict(context.get_current())))

    @sidekiq.job(name="Charge")
    def charge(number: int) -> None:
        if keeps == "a context":
            kept.append(context.get_current())
        elif keeps == "what it saw":
            kept.append(trace.get_current_span())
        raise RuntimeError("no")

    for number in range(3):
        charge.perform_async(number)

    work_off(3)

    assert between == [{}] * 3


def test_a_dropped_run_has_the_baggage_of_its_push_and_leaves_none_behind(traced: Traced, work_off: WorkOff) -> None:
    """Not even if its code forgets to detach a context."""
    traced.instrument(ALWAYS_OFF)
    seen: list[object] = []

    @sidekiq.job(name="Charge")
    def charge() -> None:
        seen.append(baggage.get_baggage("tenant"))
        context.attach(baggage.set_baggage("forgotten", "yes"))

    telemetry.attach("after", "sidekiq.job.stop", lambda name, _: seen.append(dict(context.get_current())))
    token = context.attach(baggage.set_baggage("tenant", "five"))
    charge.perform_async()
    context.detach(token)
    charge.perform_async()

    work_off(2)
    telemetry.detach("after")

    assert seen == ["five", {}, None, {}]


def test_a_ratio_of_traces_is_kept_by_the_sdks_own_rule(traced: Traced, work_off: WorkOff) -> None:
    """Another service that samples with the same ratio keeps the same traces."""
    sampler = TraceIdRatioBased(0.5)
    traced.instrument(sampler)
    seen: list[int] = []
    job = sidekiq.job(name="Charge")(lambda n: seen.append(trace.get_current_span().get_span_context().trace_id))
    sidekiq.Client().push_bulk({"class": "Charge", "args": [[n] for n in range(200)]})
    opentelemetry_pushes = len(traced.exporter.get_finished_spans())

    work_off(200)

    assert job is not None
    kept = {span.context.trace_id for span in traced.exporter.get_finished_spans()[opentelemetry_pushes:]}
    assert kept == {number for number in seen if sampler.should_sample(None, number, "").decision.is_sampled()}
    assert 50 < len(kept) < 150


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Makes threads take turns as often as possible until the test ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_start_their_first_jobs_at_once_all_have_spans(traced: Traced, hasty_threads: None) -> None:
    """They ask for the sampler's rule at the same moment; later jobs have spans, too."""
    threads_at_once = 4

    def run_one(number: int, everybody: threading.Barrier) -> None:
        job = {"payload": {"class": "Charge", "jid": str(number), "args": []}, "queue": "default", "identity": "a"}
        everybody.wait()
        telemetry.JOB_START.emit(job)
        telemetry.JOB_STOP.emit({**job, "seconds": 0.1})

    for _ in range(60):
        traced.exporter.clear()
        traced.instrument(TraceIdRatioBased(1 - 1e-12))
        everybody = threading.Barrier(threads_at_once)
        threads = [threading.Thread(target=run_one, args=(n, everybody)) for n in range(threads_at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run_one(threads_at_once, threading.Barrier(1))

        named = {span.attributes["messaging.message_id"] for span in traced.exporter.get_finished_spans()}
        assert named == {"0", "1", "2", "3", "4"}


def test_a_sampler_of_the_program_is_asked_about_each_run(traced: Traced, work_off: WorkOff) -> None:
    """It may look at names and attributes."""

    class OnlyCharges(Sampler):
        def should_sample(self, parent: Any, trace_id: int, name: str, kind: Any = None, *more: Any) -> SamplingResult:
            attributes = more[0] or {}
            is_charge = attributes.get("messaging.sidekiq.job_class") == "Charge"
            return SamplingResult(Decision.RECORD_AND_SAMPLE if is_charge else Decision.DROP, attributes)

        def get_description(self) -> str:
            return "OnlyCharges"

    traced.instrument(OnlyCharges())
    sidekiq.job(name="Charge")(lambda: None).perform_async()
    sidekiq.job(name="Mail")(lambda: None).perform_async()

    work_off(2)

    names = [span.attributes["messaging.sidekiq.job_class"] for span in traced.exporter.get_finished_spans()]
    assert names == ["Charge", "Charge"]


@pytest.mark.parametrize("given", ["5", "[1]", "null", '"00-zz-yy-01"', '{"a": 1}'])
def test_a_strangers_traceparent_harms_no_job(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]", given: str
) -> None:
    """It is ignored, and the run is its own trace."""
    traced.instrument(propagation_style="child")
    sidekiq.job(name="Charge")(lambda: None)
    redis_client.lpush("queue:default", f'{{"class":"Charge","args":[],"jid":"7","traceparent":{given}}}')

    work_off(1)

    assert traced.span("default process").parent is None


def test_pushes_and_runs_are_left_alone_after_uninstrument(
    traced: Traced, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """The payload is then the same as without tracing."""
    traced.instrument()
    opentelemetry.uninstrument()
    sidekiq.job(name="Charge")(lambda: None).perform_async()

    assert "traceparent" not in queued(redis_client, "default")
    work_off(1)
    assert traced.exporter.get_finished_spans() == ()


@pytest.mark.parametrize("options", [{"span_naming": "class"}, {"propagation_style": "follows"}])
def test_an_option_that_does_not_exist_is_refused(options: dict[str, Any]) -> None:
    """The error names the valid ones."""
    with pytest.raises(ConfigError, match=r"it must be 'queue' or 'job_class'|it must be 'link', 'child' or 'none'"):
        opentelemetry.instrument(**options)


CELERY = """
import sys
from sidekiq_celery import install_as_celery
install_as_celery()
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
if sys.argv[2] == "covered":
    CeleryInstrumentor().instrument(skip_dep_check=True)
from sidekiq_py.contrib import opentelemetry
opentelemetry.instrument()
from celery import Celery
from celery.contrib.testing.worker import start_worker
app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
app.conf.worker_hijack_root_logger = False
@app.task
def add(x, y):
    return x + y
with start_worker(app, loglevel=0, perform_ping_check=False):
    assert add.delay(1, 2).get(timeout=60) == 3
print(sorted(span.name for span in spans.get_finished_spans()))
"""


@pytest.mark.parametrize(
    ("coverage", "expected"),
    [
        ("covered", ["apply_async/shop.add", "run/shop.add"]),
        ("uncovered", ["celery process", "celery publish"]),
    ],
)
def test_tasks_that_celerys_instrumentation_covers_have_no_second_span(
    redis_url: str, coverage: str, expected: list[str]
) -> None:
    """Without that instrumentation they have our spans."""
    done = subprocess.run(
        [sys.executable, "-c", CELERY, redis_url, coverage], capture_output=True, text=True, timeout=100, check=False
    )

    assert done.stdout.strip() == str(expected), done.stderr


def test_a_missing_package_is_named_with_its_extra() -> None:
    """In a program without OpenTelemetry."""
    code = "import sys; sys.modules['opentelemetry'] = None; import sidekiq_py.contrib.opentelemetry"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "install it with: pip install 'sidekiq-py[opentelemetry]'" in done.stderr
