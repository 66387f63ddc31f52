"""One trace from Ruby through Python to Ruby, with real Sidekiq at both ends."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby
from interop_tests.support.ruby import RubyRelease
from sidekiq_py import program
from sidekiq_py.contrib import opentelemetry
from sidekiq_py.registry import registry
from tests.support.waiting import eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

# Where OpenTelemetry's instrumentation stands, and what its propagators write by default.
PUSH_IN_A_TRACE = f"""
inject = Class.new do
  define_method(:call) do |worker_class, job, queue, redis_pool, &push|
    job["traceparent"] = "00-{TRACE}-{SPAN}-01"
    job["tracestate"] = "shop=1"
    push.call
  end
end
Sidekiq.configure_client {{ |config| config.client_middleware {{ |chain| chain.prepend inject }} }}
Sidekiq::Client.push("class" => "Charge", "queue" => "python", "args" => [7])
"""


@pytest.fixture
def spans(ruby_release: RubyRelease, redis_url: str) -> Iterator[InMemorySpanExporter]:
    """What this process traces."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)
    kept = list(registry)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    opentelemetry.instrument(propagation_style="child", tracer_provider=provider)
    yield exporter
    registry.clear()
    for definition in kept:
        registry.add(definition)
    program.reset()


def test_a_trace_goes_on_in_both_directions(spans: InMemorySpanExporter, ruby: RunRuby) -> None:
    """Ruby's push is the parent of Python's run, and what Ruby reads of the next job is that run's push."""
    receipt = sidekiq.ruby_job("HardWorker", queue="ruby")

    @sidekiq.job(name="Charge", queue="python")
    def charge(number: int) -> None:
        receipt.perform_async("receipt", number)

    ruby(PUSH_IN_A_TRACE)
    with sidekiq.embed(concurrency=1, queues=["python"]):
        eventually(lambda: len(spans.get_finished_spans()) == 2)

    push, run = spans.get_finished_spans()
    assert (f"{run.context.trace_id:032x}", f"{run.parent.span_id:016x}") == (TRACE, SPAN)
    assert push.parent.span_id == run.context.span_id
    read = ruby('Sidekiq::Queue.new("ruby").first.item.slice("traceparent", "tracestate")')
    assert read == {"traceparent": f"00-{TRACE}-{push.context.span_id:016x}-01", "tracestate": "shop=1"}
