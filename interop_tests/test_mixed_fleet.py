"""Ruby and Python processes side by side on the same queues."""

from collections import Counter

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, lines
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

JOBS = 2_000
FAILING = 100


def test_a_mixed_fleet_runs_each_job_once_and_its_counters_add_up(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """2,000 jobs on two queues, enqueued half by each language, run by one process of each; some fail for good."""
    theirs = start_ruby(queues=["default", "critical"], concurrency=5)
    ours = start_python("-c", "5", "-q", "default", "-q", "critical")

    half = JOBS // 2
    queue = {True: "critical", False: "default"}
    for name in (True, False):
        numbers = [number for number in range(half) if (number % 2 == 0) is name]
        python_jobs.fixture_job.set(queue=queue[name]).perform_bulk(
            [["ledger_and_sleep", LEDGER, number, 0.001] for number in numbers]
        )
    ruby(
        """
        (half...jobs).each_slice(500).with_index do |numbers, slice|
          items = numbers.map { |number| ["ledger_and_sleep", key, number, 0.001] }
          queue = slice.even? ? "default" : "critical"
          Sidekiq::Client.push_bulk("class" => "FixtureJob", "queue" => queue, "args" => items)
        end
        failing.times { RetryFalseJob.perform_async("raise", "for good") }
        """,
        key=LEDGER,
        half=half,
        jobs=JOBS,
        failing=FAILING,
    )

    eventually(
        lambda: redis_client.llen(LEDGER) >= JOBS and not redis_client.exists("queue:default", "queue:critical"),
        within_seconds=30,
    )
    ours.stop()
    theirs.stop()

    ran = lines(redis_client)
    assert Counter(line["entry"] for line in ran) == Counter(range(JOBS))
    assert {line["by"] for line in ran} == {"ruby", "python"}
    assert ruby("stats = Sidekiq::Stats.new; [stats.processed, stats.failed]") == [JOBS + FAILING, FAILING]
    assert redis_client.smembers("processes") == set()
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)
