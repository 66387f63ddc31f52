"""Sentry and OpenTelemetry: what fails is told with its exception, and a run belongs to the call that sent it."""

import sys

import sentry_sdk
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.integrations.celery import CeleryIntegration

URL = sys.argv[1]
reports = []


class Kept(sentry_sdk.Transport):
    def capture_envelope(self, envelope):
        reports.extend(item.payload.json for item in envelope.items if item.type == "event")


sentry_sdk.init(
    dsn="http://key@localhost/1", transport=Kept, integrations=[CeleryIntegration()], default_integrations=False
)
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
# It asks the installed packages for Celery's version; where there is none, it has to be told not to.
CeleryInstrumentor().instrument(skip_dep_check=True)

from celery import Celery  # noqa: E402
from celery.contrib.testing.worker import start_worker  # noqa: E402

app = Celery("shop", broker=URL, backend=URL)
app.conf.worker_hijack_root_logger = False


@app.task
def add(x, y):
    return x + y


@app.task
def fail():
    raise KeyError("on purpose")


with start_worker(app, loglevel=0):
    assert add.delay(1, 2).get(timeout=60) == 3
    fail.delay().get(timeout=60, propagate=False)

[report] = reports
assert report["exception"]["values"][0]["type"] == "KeyError"
found = {span.name: span for span in spans.get_finished_spans()}
for name in ("shop.add", "shop.fail"):
    assert found[f"run/{name}"].parent.span_id == found[f"apply_async/{name}"].context.span_id
assert [event.name for event in found["run/shop.fail"].events] == ["exception"]
print("done")
