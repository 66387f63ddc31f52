"""Python enqueues, real Ruby Sidekiq performs."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, entries, lines
from interop_tests.support.ruby import RubyRelease, RubySidekiq
from sidekiq_py import program
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client", "ruby_worker")

EVERY_JSON_TYPE: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    10**30,
    1.5,
    1e22,
    5e-324,
    -0.0,
    "é\u2028\x00\x7f😀",
    "",
    [],
    {},
    {"b": [1, {"a": None}], "10": "x", "9": "y"},
]


@pytest.fixture(scope="module")
def ruby_worker(
    ruby_release: RubyRelease, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A worker for all tests of this module: it takes no notice of Redis being emptied between them."""
    log_path = tmp_path_factory.mktemp("ruby") / "worker.log"
    queues = ["default", "critical", "invoices"]
    with RubySidekiq(ruby_release, redis_url=redis_server.url, queues=queues, log_path=log_path):
        yield


def test_ruby_performs_what_python_pushed(redis_client: redis.Redis) -> None:
    """The job runs in Ruby under the jid that Python returned."""

    jid = python_jobs.fixture_job.perform_async("ledger", LEDGER, "now")

    [line] = eventually(lambda: lines(redis_client))
    assert (line["by"], line["jid"], line["entry"]) == ("ruby", jid, "now")


def test_ruby_performs_a_delayed_job_when_it_is_due(redis_client: redis.Redis) -> None:
    """Ruby's poller understands the score that Python wrote, and does not take the job earlier."""
    pushed_at = time.time()

    python_jobs.fixture_job.perform_in(0.7, "ledger", LEDGER, "later")

    eventually(lambda: entries(redis_client) == ["later"])
    assert time.time() - pushed_at >= 0.7


def test_ruby_performs_a_job_scheduled_for_a_moment(redis_client: redis.Redis) -> None:
    """`perform_at` with epoch seconds."""

    python_jobs.fixture_job.perform_at(time.time() + 0.3, "ledger", LEDGER, "at")

    assert eventually(lambda: entries(redis_client)) == ["at"]


def test_ruby_performs_each_job_of_a_bulk_push_once(redis_client: redis.Redis) -> None:
    """More jobs than one slice holds."""

    jids = python_jobs.fixture_job.perform_bulk([["ledger", LEDGER, number] for number in range(1_500)])

    eventually(lambda: redis_client.llen(LEDGER) >= 1_500, within_seconds=60)
    ran = lines(redis_client)
    assert Counter(line["entry"] for line in ran) == Counter(range(1_500))
    assert {line["entry"]: line["jid"] for line in ran} == dict(enumerate(jids))


def test_ruby_performs_a_delayed_bulk_push_when_it_is_due(redis_client: redis.Redis) -> None:
    """One time for all jobs, or one for each."""
    now = time.time()
    calls = [["ledger", LEDGER, number] for number in range(200)]

    python_jobs.fixture_job.perform_bulk(calls[:100], at=now + 0.5)
    python_jobs.fixture_job.perform_bulk(calls[100:], at=[now + n / 100 for n in range(100)])

    eventually(lambda: redis_client.llen(LEDGER) >= 200)
    assert sorted(entries(redis_client)) == list(range(200))
    assert time.time() - now >= 0.99


def test_ruby_finds_the_job_in_the_queue_that_set_named(redis_client: redis.Redis) -> None:
    """The queue is also registered in `queues`."""

    python_jobs.fixture_job.set(queue="critical").perform_async("ledger", LEDGER, "there")

    assert eventually(lambda: entries(redis_client)) == ["there"]
    assert redis_client.smembers("queues") == {b"critical"}


def test_ruby_receives_every_json_type_as_it_was(redis_client: redis.Redis) -> None:
    """Arguments survive the trip into Ruby and back."""

    python_jobs.fixture_job.perform_async("echo", "echo", *EVERY_JSON_TYPE)

    [echoed] = eventually(lambda: redis_client.lrange("echo", 0, -1))
    assert json.loads(echoed) == EVERY_JSON_TYPE


def test_a_ruby_job_handle_enqueues_a_class_that_only_ruby_has(redis_client: redis.Redis) -> None:
    """A namespaced Ruby class, enqueued by name."""
    invoice = sidekiq.ruby_job("Billing::InvoiceJob", queue="invoices")

    jid = invoice.perform_async("ledger", LEDGER, 42)

    [line] = eventually(lambda: lines(redis_client))
    assert (line["entry"], line["jid"]) == (42, jid)


def test_a_client_push_by_name_reaches_ruby(redis_url: str, redis_client: redis.Redis) -> None:
    """`Client` with its own URL, for a single push and in bulk."""
    client = sidekiq.Client(redis_url=redis_url)

    client.push({"class": "FixtureJob", "args": ["ledger", LEDGER, 1]})
    client.push_bulk({"class": "FixtureJob", "args": [["ledger", LEDGER, 2], ["ledger", LEDGER, 3]]})

    eventually(lambda: sorted(entries(redis_client)) == [1, 2, 3])


def test_an_awaited_push_reaches_ruby(redis_url: str, redis_client: redis.Redis) -> None:
    """`AsyncClient` and the awaitable methods of a declared job."""

    async def push() -> None:
        client = sidekiq.AsyncClient(redis_url=redis_url)
        await client.push({"class": "FixtureJob", "args": ["ledger", LEDGER, 1]})
        await client.close()
        await python_jobs.fixture_job.aperform_async("ledger", LEDGER, 2)

    asyncio.run(push())

    eventually(lambda: sorted(entries(redis_client)) == [1, 2])


def test_a_job_that_ruby_runs_may_enqueue_one_for_python(redis_client: redis.Redis, start_python: StartPython) -> None:
    """From Python to Ruby and back to Python: the chain continues through both."""
    start_python("-q", "python")

    python_jobs.fixture_job.perform_async("enqueue", "PythonJob", ["ledger", LEDGER, "back"], "python")

    [line] = eventually(lambda: lines(redis_client))
    assert (line["by"], line["entry"]) == ("python", "back")


def test_ruby_reads_the_times_that_python_wrote(redis_url: str, ruby: RunRuby) -> None:
    """With the release configured, milliseconds for 8; without it, the format that most releases read."""
    job = python_jobs.fixture_job.set(queue="unserved")
    job.perform_async("ok")
    job.perform_in(1_000, "ok")
    program.reset()
    sidekiq.configure(redis_url=redis_url)
    job.perform_async("ok")
    job.perform_in(1_000, "ok")

    ages, delays = ruby(
        """
        now = Time.now
        queued, scheduled = Sidekiq::Queue.new("unserved").to_a, Sidekiq::ScheduledSet.new.to_a
        [queued.flat_map { |job| [now - job.created_at, now - job.enqueued_at, job.latency] } +
           scheduled.map { |job| now - job.created_at },
         scheduled.map { |job| job.at - job.created_at }]
        """
    )

    assert len(ages) == 8
    assert all(-1 < age < 60 for age in ages)
    assert all(999 < delay < 1_001 for delay in delays)
