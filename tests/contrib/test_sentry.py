"""What is sent to Sentry, through the test's own transport."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("sentry_sdk")

import redis
import sentry_sdk

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.contrib import sentry

pytestmark = pytest.mark.usefixtures("own_program")

WorkOff = Callable[..., None]

RUBYS_TRACE, RUBYS_SPAN = "771a43a4192642f0b136d5159a501700", "b7ad6b7169203331"
# As sentry-sidekiq writes it: its client middleware adds its keys before `enqueued_at`.
FROM_RUBY = json.dumps(
    {
        **{"retry": True, "queue": "default", "args": ["secret"], "class": "Charge", "jid": "b4a577edbccf1d805744efa9"},
        **{"tags": ["billing"], "created_at": 1763800000.5, "sentry_user": {"id": 7}},
        "trace_propagation_headers": {
            "sentry-trace": f"{RUBYS_TRACE}-{RUBYS_SPAN}-1",
            "baggage": f"sentry-trace_id={RUBYS_TRACE},sentry-sampled=true,sentry-release=shop",
        },
        "enqueued_at": 1763800001.5,
    }
)


class Sentry:
    """The events that Sentry received."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def init(self, **options: Any) -> None:
        """Initialize Sentry as a program does."""
        sent = self.sent

        class Kept(sentry_sdk.Transport):
            def capture_envelope(self, envelope: Any) -> None:
                sent.extend(item.payload.json for item in envelope.items if item.type in ("event", "transaction"))

        settings = {"dsn": "http://key@localhost/1", "transport": Kept, "default_integrations": False, **options}
        sentry_sdk.init(**{"traces_sample_rate": 1.0, **settings})

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The reported errors."""
        return [event for event in self.sent if event.get("type") != "transaction"]

    @property
    def transactions(self) -> list[dict[str, Any]]:
        """The transactions of runs."""
        return [event for event in self.sent if event.get("type") == "transaction"]


@pytest.fixture
def collector() -> Iterator[Sentry]:
    """Sentry, until the test ends."""
    server = Sentry()
    server.init()
    sentry.instrument()
    yield server
    sentry.uninstrument()
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_is_told_once_with_its_job(collector: Sentry, work_off: WorkOff, *, is_async: bool) -> None:
    """Which job failed, its origin and its attempt; no arguments."""

    async def afail(secret: str) -> None:
        raise KeyError("on purpose")

    def fail(secret: str) -> None:
        raise KeyError("on purpose")

    job = sidekiq.job(name="Charge", retry=False)(afail if is_async else fail)
    jid = job.set(tags=["billing"]).perform_async("4111 1111")

    work_off(1)

    [event] = collector.errors
    assert event["exception"]["values"][-1]["type"] == "KeyError"
    assert event["tags"] == {"queue": "default", "jid": jid, "sidekiq.billing": "true"}
    assert event["transaction"] == "Sidekiq/Charge"
    assert event["contexts"]["sidekiq"]["class"] == "Charge"
    assert "4111" not in json.dumps(event["contexts"])
    [run] = collector.transactions
    assert run["contexts"]["trace"]["status"] == "internal_error"
    assert event["contexts"]["trace"]["trace_id"] == run["contexts"]["trace"]["trace_id"]


def test_arguments_are_told_where_the_program_allows_it(collector: Sentry, work_off: WorkOff) -> None:
    """They may contain personal data."""
    sentry.instrument(send_arguments=True)
    sidekiq.job(name="Charge", retry=False)(lambda number: 1 / 0).perform_async(5)

    work_off(1)

    assert collector.errors[0]["contexts"]["sidekiq"]["args"] == [5]


def test_arguments_of_callbacks_of_a_celery_task_are_not_told(collector: Sentry, work_off: WorkOff) -> None:
    """The payload has them, and the texts that a caller gave for its arguments, under the key `celery`."""
    marks = {"argsrepr": "4111 1111", "callbacks": [{"task": "mail", "args": ["4111 1111"], "kwargs": {}}]}
    sidekiq.job(name="Charge", retry=False)(lambda: 1 / 0).set(custom={"celery": marks}).perform_async()

    work_off(1)

    assert "4111" not in json.dumps(collector.errors[0]["contexts"])


@pytest.mark.parametrize("key", ["lock_args", "unique_args"])
def test_the_copy_of_the_arguments_that_sidekiq_unique_jobs_makes_is_not_told(
    collector: Sentry, work_off: WorkOff, key: str
) -> None:
    """The gem writes it beside the arguments; with `send_arguments` both are sent."""
    charge = sidekiq.job(name="Charge", retry=False)(lambda number: 1 / 0).set(custom={key: ["4111 1111"]})
    charge.perform_async("4111 1111")
    work_off(1)
    sentry.instrument(send_arguments=True)
    charge.perform_async("4111 1111")
    work_off(1)

    hidden, told = (error["contexts"]["sidekiq"] for error in collector.errors)
    assert "4111" not in json.dumps(hidden)
    assert (told["args"], told[key]) == (["4111 1111"], ["4111 1111"])


def test_one_trace_runs_from_ruby_through_python_to_ruby(
    collector: Sentry, work_off: WorkOff, redis_client: "redis.Redis[bytes]"
) -> None:
    """With the gem's keys."""
    receipt = sidekiq.ruby_job("Receipt", queue="ruby")

    @sidekiq.job(name="Charge")
    def charge(number: int) -> None:
        receipt.perform_async(number)

    redis_client.lpush("queue:default", FROM_RUBY)

    work_off(1)

    [run] = collector.transactions
    trace = run["contexts"]["trace"]
    assert (trace["trace_id"], trace["parent_span_id"], trace["op"]) == (RUBYS_TRACE, RUBYS_SPAN, "queue.process")
    assert (run["transaction"], run["transaction_info"]["source"]) == ("Sidekiq/Charge", "task")
    assert run["user"] == {"id": 7}
    assert run["tags"]["sidekiq.billing"] == "true"
    [push] = run["spans"]
    assert (push["op"], push["description"]) == ("queue.publish", "Receipt")
    to_ruby = json.loads(redis_client.lrange("queue:ruby", 0, -1)[0])
    headers = to_ruby["trace_propagation_headers"]
    assert headers["sentry-trace"] == f"{RUBYS_TRACE}-{trace['span_id']}-1"
    assert "sentry-release=shop" in headers["baggage"]
    assert list(to_ruby)[-2:] == ["trace_propagation_headers", "enqueued_at"]


def test_jobs_do_not_see_each_others_scope(collector: Sentry, work_off: WorkOff) -> None:
    """What a job sets ends with it, even if both run in one thread."""

    @sidekiq.job(name="Charge", retry=False)
    def charge(number: int) -> None:
        if number == 1:
            sentry_sdk.set_tag("mine", "yes")
        else:
            raise ValueError

    charge.perform_async(1)
    charge.perform_async(2)

    work_off(2)

    [event] = collector.errors
    assert "mine" not in event["tags"]


def test_only_the_last_failure_is_told_if_asked(collector: Sentry, work_off: WorkOff) -> None:
    """The gem's option, for jobs with a number of retries."""
    sentry.instrument(report_after_retries=True)
    sidekiq.job(name="Charge")(lambda: 1 / 0)
    for retry_count in (None, 0, 1):
        job = {"class": "Charge", "args": [], "retry": 2, "tags": [str(retry_count)]}
        sidekiq.Client().push(job if retry_count is None else {**job, "retry_count": retry_count})

    work_off(3)

    assert [event["contexts"]["sidekiq"]["tags"] for event in collector.errors] == [["1"]]


def test_errors_beside_jobs_are_told(collector: Sentry) -> None:
    """Everything that error handlers get: a heartbeat that fails, a job whose process was killed."""
    program.hooks.report(RuntimeError("late"), {"context": "Job raised exception", "job": {"class": "A", "jid": "7"}})
    program.hooks.report(OSError("away"), {"context": "heartbeat"})

    killed, away = collector.errors
    assert (killed["transaction"], killed["tags"]["jid"]) == ("Sidekiq/A", "7")
    assert away["extra"] == {"context": "heartbeat"}


def test_a_stop_is_no_error(collector: Sentry) -> None:
    """A job that returns to its queue has not failed."""
    has_begun = []

    @sidekiq.job(name="Long")
    def long() -> None:
        has_begun.append(1)
        while True:
            sum(range(1000))

    long.perform_async()
    with sidekiq.embed(concurrency=1) as worker:
        while not has_begun:
            sum(range(1000))
        worker.stop(timeout_seconds=0)

    assert collector.errors == []
    assert [run["contexts"]["trace"]["status"] for run in collector.transactions] == ["cancelled"]


@pytest.mark.parametrize("given", [5, "x", ["a"], {"sentry-trace": 5, "baggage": None}])
def test_a_strangers_headers_harm_no_job(collector: Sentry, work_off: WorkOff, given: Any) -> None:
    """They are ignored."""
    ran: list[int] = []
    sidekiq.job(name="Charge")(lambda: ran.append(1))
    payload = {"class": "Charge", "args": [], "jid": "7", "trace_propagation_headers": given, "sentry_user": given}
    with redis.Redis.from_url(program.settings().redis.url) as client:
        client.lpush("queue:default", json.dumps(payload))

    work_off(1)

    assert ran == [1]


def test_without_init_nothing_is_written(work_off: WorkOff, redis_client: "redis.Redis[bytes]") -> None:
    """A program may call `instrument` in all environments, and `init` only in production."""
    sentry.instrument()
    sidekiq.job(name="Charge")(lambda: None).perform_async()

    assert b"trace_propagation_headers" not in redis_client.lrange("queue:default", 0, -1)[0]
    work_off(1)
    sentry.uninstrument()


def test_nothing_is_told_after_uninstrument(collector: Sentry, work_off: WorkOff) -> None:
    """Neither errors nor runs are sent."""
    sentry.uninstrument()
    sidekiq.job(name="Charge", retry=False)(lambda: 1 / 0).perform_async()

    work_off(1)

    assert collector.sent == []


CELERY = """
import json, sys
from sidekiq_celery import install_as_celery
install_as_celery()
import sentry_sdk
from sentry_sdk.integrations.celery import CeleryIntegration
sent = []
class Kept(sentry_sdk.Transport):
    def capture_envelope(self, envelope):
        sent.extend(item.payload.json for item in envelope.items if item.type == "event")
integrations = [CeleryIntegration()] if sys.argv[2] == "covered" else []
sentry_sdk.init(dsn="http://key@localhost/1", transport=Kept, integrations=integrations, default_integrations=False)
from sidekiq_py.contrib import sentry
sentry.instrument()
from celery import Celery
from celery.contrib.testing.worker import start_worker
app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
app.conf.worker_hijack_root_logger = False
@app.task
def fail():
    raise KeyError("on purpose")
with start_worker(app, loglevel=0, perform_ping_check=False):
    fail.delay().get(timeout=60, propagate=False)
print([event["exception"]["values"][-1]["mechanism"]["type"] for event in sent])
"""


@pytest.mark.parametrize(("coverage", "expected"), [("covered", "['celery']"), ("uncovered", "['generic']")])
def test_a_task_that_sentrys_own_integration_covers_is_told_once(redis_url: str, coverage: str, expected: str) -> None:
    """Without that integration we report it."""
    done = subprocess.run(
        [sys.executable, "-c", CELERY, redis_url, coverage], capture_output=True, text=True, timeout=100, check=False
    )

    assert done.stdout.strip() == expected, done.stderr


def test_a_missing_package_is_named_with_its_extra() -> None:
    """In a program without Sentry."""
    code = "import sys; sys.modules['sentry_sdk'] = None; import sidekiq_py.contrib.sentry"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "install it with: pip install 'sidekiq-py[sentry]'" in done.stderr
