"""Active Jobs in a running worker, from and to a real Redis."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from time import time

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import Keywords, active_job, current_active_job, perform_later
from sidekiq_py.api import RetrySet
from sidekiq_py.config import Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redaction import Redaction
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import registry
from tests.support.waiting import eventually


@pytest.fixture
def start_worker_here(redis_url: str) -> Iterator[Callable[[], None]]:
    """Starts a worker in this process once the jobs are declared, and stops it after the test."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.4.1")
    launchers: list[Launcher] = []

    def start() -> None:
        config = Config(redis=RedisSettings(redis_url), sidekiq_version="6.4.1", embedded=True, job_log=False)
        launcher = Launcher(
            WorkerParts(
                config, registry=registry, hooks=Hooks(), server_middleware=Chain(), client=sidekiq.Client(redis_url)
            )
        )
        launchers.append(launcher)
        launcher.start()

    yield start
    for launcher in launchers:
        launcher.stop(timeout_seconds=1)


def test_sync_and_async_jobs_run_side_by_side(start_worker_here):
    """All under one class: an `async def` on the loop, a function in a processor's thread."""
    ran = {}

    @active_job("PlainJob")
    def plain(*args, **keywords):
        ran["plain"] = (args, keywords, threading.current_thread().name)

    @active_job("AwaitedJob")
    async def awaited(*args):
        ran["awaited"] = (args, asyncio.get_running_loop() is not None, threading.current_thread().name)

    perform_later("PlainJob", 1, Keywords(a=2))
    perform_later("AwaitedJob", 3)
    start_worker_here()

    eventually(lambda: len(ran) == 2)
    assert ran["plain"][:2] == ((1,), {"a": 2})
    assert ran["awaited"][:2] == ((3,), True)
    assert ran["plain"][2] != ran["awaited"][2]


def test_rules_cover_the_time_limit_of_an_async_job_too(start_worker_here, redis_client):
    """Though it is a cancellation in the job itself; without a rule, the failure is Sidekiq's to retry."""
    ran = []

    @active_job("RetriedJob", timeout=0.1, retry_on={SoftTimeLimitError: {"wait": 0, "attempts": 2}})
    async def retried():
        ran.append(current_active_job().executions)
        if len(ran) == 1:
            await asyncio.sleep(60)

    @active_job("DiscardedJob", timeout=timedelta(seconds=0.1), discard_on=SoftTimeLimitError)
    async def discarded():
        await asyncio.sleep(60)

    @active_job("OtherJob", timeout=0.1, discard_on=LookupError)
    async def other():
        await asyncio.sleep(60)

    perform_later("RetriedJob")
    perform_later("DiscardedJob")
    perform_later("OtherJob")
    start_worker_here()

    [entry] = eventually(lambda: redis_client.get("stat:processed") == b"4" and redis_client.zrange("retry", 0, -1))
    assert ran == [1, 2]
    assert json.loads(entry)["wrapped"] == "OtherJob"
    assert json.loads(entry)["error_class"] == "sidekiq_py.errors.SoftTimeLimitError"


def test_the_log_hides_the_text_of_a_handled_error(start_worker_here, caplog):
    """If the policy says so for this job."""
    sidekiq.configure(redaction=Redaction(jobs={"DiscardedJob": ["error_message"]}))

    @active_job("DiscardedJob", discard_on=ValueError)
    def discarded(text):
        raise ValueError(text)

    with caplog.at_level(logging.INFO, "sidekiq"):
        perform_later("DiscardedJob", "hunter2")
        start_worker_here()
        eventually(lambda: "discarded DiscardedJob" in caplog.text)

    assert "ValueError: [redacted]" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_nobody_declares_waits_in_the_retry_set(start_worker_here, redis_client):
    """With the name of the job, not of the wrapper, in its error."""

    @active_job("PlainJob")
    def plain(): ...

    jid = perform_later("Billing::InvoiceJob", 1)
    start_worker_here()

    [entry] = eventually(lambda: redis_client.zrange("retry", 0, -1))
    payload = json.loads(entry)
    assert (payload["jid"], payload["wrapped"], payload["retry_count"]) == (jid, "Billing::InvoiceJob", 0)
    assert "Billing::InvoiceJob" in payload["error_message"]


def test_active_jobs_retries_come_before_sidekiqs(start_worker_here, redis_client):
    """The first failures go back through the schedule set under new jids, the last one to the retry set."""

    @active_job("FlakyJob", retry_on={ZeroDivisionError: {"wait": 0, "attempts": 3, "jitter": 0}})
    def flaky():
        raise ZeroDivisionError("no luck")

    first = perform_later("FlakyJob")
    start_worker_here()

    [entry] = eventually(lambda: redis_client.zrange("retry", 0, -1))
    payload = json.loads(entry)
    job = payload["args"][0]
    assert payload["jid"] != first
    assert (job["executions"], job["exception_executions"]) == (2, {"[ZeroDivisionError]": 2})
    assert (payload["error_class"], payload["error_message"]) == ("ZeroDivisionError", "no luck")


def test_a_job_decides_about_sidekiqs_retries(start_worker_here, redis_client):
    """With Ruby's `sidekiq_retry_in` and `sidekiq_retries_exhausted`, which Active Jobs have since Sidekiq 7.1.3."""
    told = []

    @active_job("PatientJob", sidekiq_options={"retry": 1})
    def patient(number):
        raise LookupError(f"no {number}")

    @patient.retry_in
    def wait(count, error, payload):
        told.append((count, str(error), payload["wrapped"]))
        return 100_000

    @patient.retries_exhausted
    def give_up(payload, error):
        told.append((payload["retry_count"], str(error), payload["wrapped"]))

    perform_later("PatientJob", 7, sidekiq_options={"retry": 1})
    start_worker_here()
    [(_, due)] = eventually(lambda: redis_client.zrange("retry", 0, -1, withscores=True))
    [entry] = RetrySet()
    entry.add_to_queue()
    eventually(lambda: redis_client.zcard("dead"))

    assert due > time() + 90_000
    assert told == [(0, "no 7", "PatientJob"), (1, "no 7", "PatientJob")]
