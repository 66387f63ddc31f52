"""Ruby and Python processes side by side on the same queues."""

from collections import Counter
from functools import partial

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, entries, lines
from sidekiq_py.api import Stats
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

JOBS = 2_000
FAILING = 100
JOBS_WITH_KILLS = 3_000


def test_a_mixed_fleet_runs_each_job_once_and_its_counters_add_up(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """
    2,000 jobs on two queues, half of them enqueued by each language, run by one process of each; some fail for
    good.
    """
    # Sidekiq 6.0 forgets at its end what it has counted since its last beat.
    theirs = start_ruby(queues=["default", "critical"], concurrency=5, environment={"FIXTURE_BEAT_SECONDS": "0.5"})
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
        within_seconds=60,
    )
    eventually(lambda: Stats().processed == JOBS + FAILING)
    our_name = ours.identity.encode()
    ours.stop()
    theirs.stop()

    ran = lines(redis_client)
    assert Counter(line["entry"] for line in ran) == Counter(range(JOBS))
    assert {line["by"] for line in ran} == {"ruby", "python"}
    assert ruby("stats = Sidekiq::Stats.new; [stats.processed, stats.failed]") == [JOBS + FAILING, FAILING]
    # A beat of Ruby's that is under way while it leaves may register it once more (Sidekiq 8.1.7, launcher.rb).
    assert our_name not in redis_client.smembers("processes")
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)


def test_a_mixed_fleet_loses_nothing_when_its_python_process_is_killed(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Python is killed twice while it works and restarted: every job runs, and few run twice."""
    # So many that Ruby's one thread leaves enough of them, however long Python takes to start.
    start_ruby(concurrency=1)
    ruby(
        """
        items = (0...jobs).map { |number| ["sleep_and_ledger", key, number, 0.005] }
        Sidekiq::Client.push_bulk("class" => FixtureJob, "args" => items)
        """,
        key=LEDGER,
        jobs=JOBS_WITH_KILLS,
    )

    for _ in range(2):
        worker = start_python("-c", "5")
        eventually(partial(has_run, redis_client, worker.pid, at_least=50))
        worker.kill()
    start_python("-c", "5")

    eventually(lambda: set(entries(redis_client)) == set(range(JOBS_WITH_KILLS)), within_seconds=60, every_seconds=0.2)
    runs = Counter(entries(redis_client))
    again = {entry: count for entry, count in runs.items() if count > 1}
    print(f"ran twice: {again}")
    assert len(again) <= 10
    eventually(lambda: redis_client.llen("queue:default") == 0)
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)


def has_run(client: redis.Redis, pid: int, *, at_least: int) -> bool:
    """Whether the process has run that many jobs."""
    return len([line for line in lines(client) if line["pid"] == pid]) >= at_least
