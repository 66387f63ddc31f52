"""Enables tracing without keeping any trace, for `bench/telemetry.py`; loaded together with `bench.jobs`."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from sidekiq_py.contrib import opentelemetry

trace.set_tracer_provider(TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.0))))
opentelemetry.instrument()
