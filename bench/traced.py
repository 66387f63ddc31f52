"""Traces of which none is kept, for `bench/telemetry.py`; loaded beside `bench.jobs`."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from sidekiq_py.contrib import opentelemetry

trace.set_tracer_provider(TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.0))))
opentelemetry.instrument()
