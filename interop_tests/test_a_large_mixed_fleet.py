"""Two Ruby and two Python processes with ten thousand jobs of every kind: each job runs once, and all counts agree."""

import time
from collections import Counter

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, lines
from sidekiq_py.api import ProcessSet, Stats
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

JOBS = 10_000
# A tenth fails once, and another tenth is scheduled.
FAILING_ONCE = JOBS // 10
QUEUES = ("critical", "default")


@pytest.mark.long
@pytest.mark.timeout(240)
def test_ten_thousand_jobs_of_both_languages_run_once_each(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """
    Weighted queues, schedules and retries; the counters add up, and neither side treats the other's processes as
    dead.
    """
    for _ in range(2):
        start_ruby(queues=["critical,3", "default,1"])
        start_python("-c", "5", "-q", "critical,3", "-q", "default,1")
    push_from_python(range(0, JOBS, 2))
    push_from_ruby(ruby, 1)

    seen_by_ruby = []
    seen_by_python = []

    def all_have_run() -> bool:
        seen_by_python.append(len(ProcessSet()))
        return redis_client.llen(LEDGER) >= JOBS

    eventually(all_have_run, within_seconds=120, every_seconds=0.2)
    seen_by_ruby.append(ruby("Sidekiq::ProcessSet.new.size"))
    counted = eventually(lambda: stats_when_all_have_beaten(redis_client), within_seconds=30, every_seconds=0.5)

    ran = lines(redis_client)
    assert Counter(line["entry"] for line in ran) == Counter(range(JOBS))
    assert {line["by"] for line in ran} == {"ruby", "python"}
    assert len({line["pid"] for line in ran}) == 4
    assert (set(seen_by_python), seen_by_ruby) == ({4}, [4])
    assert counted == (JOBS + FAILING_ONCE, FAILING_ONCE)
    assert ruby("stats = Sidekiq::Stats.new; [stats.processed, stats.failed, stats.enqueued]") == [*counted, 0]
    assert [redis_client.zcard(name) for name in ("schedule", "retry", "dead")] == [0, 0, 0]


def stats_when_all_have_beaten(client: redis.Redis) -> tuple[int, int] | None:
    """The counters once each Ruby process has written its own, which it does at its next beat."""
    stats = Stats()
    return (stats.processed, stats.failed) if stats.processed >= JOBS + FAILING_ONCE else None


def kind(number: int) -> str:
    """What the job of this number is; odd and even ones alike, as the languages share them so."""
    position = number // 2 % 10
    return {0: "scheduled", 1: "failing once"}.get(position, "short")


def push_from_python(numbers: range) -> None:
    """In bulk, delayed, and one by one."""
    due = time.time() + 1
    for queue in QUEUES:
        mine = [number for number in numbers if QUEUES[number // 20 % 2] == queue]
        job = python_jobs.fixture_job.set(queue=queue)
        job.perform_bulk([["ledger", LEDGER, number] for number in mine if kind(number) == "short"])
        scheduled = [["ledger", LEDGER, number] for number in mine if kind(number) == "scheduled"]
        job.perform_bulk(scheduled, at=due)
        for number in mine:
            if kind(number) == "failing once":
                soon = python_jobs.retry_soon_job.set(queue=queue)
                soon.perform_async("raise_until", f"fixture:runs:{number}", 1, LEDGER, number)


def push_from_ruby(ruby: RunRuby, first: int) -> None:
    """The same from the other side."""
    ruby(
        """
        kind = ->(number) { {0 => "scheduled", 1 => "failing once"}.fetch(number / 2 % 10, "short") }
        due = Time.now.to_f + 1
        queues.each_with_index do |queue, index|
          mine = (first...jobs).step(2).select { |number| number / 20 % 2 == index }.group_by(&kind)
          args = ->(name) { mine.fetch(name, []).map { |number| ["ledger", key, number] } }
          Sidekiq::Client.push_bulk("class" => "FixtureJob", "queue" => queue, "args" => args.call("short"))
          args.call("scheduled").each_slice(100) do |slice|
            Sidekiq::Client.push_bulk("class" => "FixtureJob", "queue" => queue, "args" => slice, "at" => due)
          end
          mine.fetch("failing once", []).each do |number|
            RetrySoonJob.set(queue: queue).perform_async("raise_until", "fixture:runs:#{number}", 1, key, number)
          end
        end
        nil
        """,
        queues=QUEUES,
        first=first,
        jobs=JOBS,
        key=LEDGER,
    )
