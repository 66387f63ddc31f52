"""Batches that the gem sidekiq-batch has opened, whose jobs are run by both languages."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import StartPython, StartRuby
from interop_tests.support.ledger import LEDGER, entries, lines
from interop_tests.support.ruby import UTF8, RubyRelease, run_ruby
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.wire.dialect import Dialect
from tests.support.sidekiq_batch import compare
from tests.support.waiting import eventually

PROGRAM = "sidekiq_batch.rb"
WAIT_SECONDS = 60

RunRuby = Callable[..., Any]


@pytest.fixture
def ruby(ruby_release: RubyRelease, redis_url: str) -> RunRuby:
    """Runs Ruby code in a program that has loaded the gem, but is no worker."""
    return lambda code, **values: run_ruby(ruby_release, code, redis_url, also=[PROGRAM], **values)


@pytest.fixture
def start_ruby(start_ruby: StartRuby, ruby_release: RubyRelease) -> StartRuby:
    """Ruby's workers load the gem; they alone serve the queue of the callbacks."""
    return lambda **options: start_ruby(program=PROGRAM, **options)


@pytest.fixture
def app(ruby_release: RubyRelease, redis_url: str) -> Iterator[None]:
    """This process writes as that release does."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)
    program.extensions.load_installed()
    yield
    sync_client.current().close()
    program.reset()


def callbacks(client: redis.Redis) -> list[Any]:
    """What Ruby's callbacks have noted."""
    return [json.loads(line) for line in client.lrange("callbacks", 0, -1)]


@pytest.mark.usefixtures("app")
def test_random_histories_leave_the_same_keys(
    redis_client: redis.Redis, redis_url: str, ruby_release: RubyRelease, report: Callable[[object], None]
) -> None:
    """Trees of up to five batches, whose jobs and callbacks end in any order, each failing at times."""
    seed = int(os.environ.get("FIXTURE_SEED", "1"))
    recorder = str(ruby_release.fixtures / "record_sidekiq_batch.rb")
    ran = subprocess.run(
        [*ruby_release.ruby, recorder, "100", str(seed)],
        capture_output=True,
        check=True,
        timeout=100,
        env={**os.environ, **UTF8, **ruby_release.environment, "REDIS_URL": redis_url},
    )
    histories = json.loads(ran.stdout)["histories"]

    for history in histories.values():
        compare(redis_client, sync_client.current().pool, history, Dialect.pinned(ruby_release.sidekiq_version))
    report(f"{sum(len(history['steps']) for history in histories.values())} ends, seed {seed}")


def test_both_languages_run_a_batch_and_each_callback_is_called_once(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Sixty jobs on a queue that both serve; Python leaves no key of the batch behind."""
    start_ruby(queues=["mixed", "ruby"], concurrency=2)
    worker = start_python("-q", "mixed", "-c", "2")

    bid = ruby(
        """
        open_batch do
          60.times { |number| FixtureJob.set("queue" => "mixed").perform_async("ledger_and_sleep", key, number, 0.02) }
        end
        """,
        key=LEDGER,
    )

    eventually(lambda: len(callbacks(redis_client)) == 2, WAIT_SECONDS)
    eventually(lambda: not redis_client.keys("BID-*"), WAIT_SECONDS)
    assert sorted(callbacks(redis_client)) == [["complete", bid, {"n": 1}], ["success", bid, {"n": 1}]]
    assert Counter(entries(redis_client)) == Counter(range(60))
    assert {line["by"] for line in lines(redis_client)} == {"python", "ruby"}
    assert "no longer serves mixed" not in worker.log


def test_failures_in_python_count_as_in_ruby(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """One job dies, another one fails and succeeds by its retry: `complete` is called, and `success` is not."""
    start_ruby(queues=["ruby"])
    start_python("-q", "mixed", "-c", "2")

    bid = ruby(
        """
        open_batch do
          RetrySoonJob.set("queue" => "mixed").perform_async("raise_until", "runs", 1, key, 1)
          RetryZeroJob.set("queue" => "mixed").perform_async("raise", "for good")
        end
        """,
        key=LEDGER,
    )

    eventually(lambda: redis_client.hget(f"BID-{bid}", "pending") == b"1", WAIT_SECONDS)
    eventually(lambda: callbacks(redis_client), WAIT_SECONDS)
    assert callbacks(redis_client) == [["complete", bid, {"n": 1}]]
    assert entries(redis_client) == [1]
    assert redis_client.scard(f"BID-{bid}-failed") == 1
    assert redis_client.zcard("dead") == 1


@pytest.mark.kill
def test_a_python_process_that_is_killed_costs_no_job_of_a_batch(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Whatever it was running is run again, and counted once."""
    start_ruby(queues=["ruby"])
    bid = ruby(
        """
        open_batch do
          40.times { |number| FixtureJob.set("queue" => "mixed").perform_async("ledger_and_sleep", key, number, 0.05) }
        end
        """,
        key=LEDGER,
    )
    for _ in range(3):
        ran = redis_client.llen(LEDGER)
        worker = start_python("-q", "mixed", "-c", "2")
        eventually(lambda ran=ran: redis_client.llen(LEDGER) >= ran + 6, WAIT_SECONDS)  # type: ignore[misc]
        worker.kill()

    start_python("-q", "mixed", "-c", "2")

    eventually(lambda: len(callbacks(redis_client)) == 2, WAIT_SECONDS)
    assert sorted(callbacks(redis_client)) == [["complete", bid, {"n": 1}], ["success", bid, {"n": 1}]]
    assert set(entries(redis_client)) == set(range(40))
