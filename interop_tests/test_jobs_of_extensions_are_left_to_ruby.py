"""Jobs of Pro's batches on a queue that both languages serve."""

from collections import Counter

import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import LEDGER, entries, lines
from tests.support.waiting import eventually

PUSH = """
count.times do |number|
  FixtureJob.set("queue" => "mixed", "bid" => "b-7KyWqDV3Z0Pg").perform_async("ledger", key, number)
end
"""
SEEN = "Sidekiq::ProcessSet.new.map { |process| { queues: process['queues'] } }"


def test_each_job_of_a_batch_ends_with_ruby(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Two Python workers requeue it and stop serving the queue, as Ruby's data API shows; Ruby runs it, once."""
    ours = [start_python("-q", "mixed", "-q", "own", "-c", "3") for _ in range(2)]
    ruby(PUSH, key=LEDGER, count=30)
    eventually(lambda: all(worker.log.count("no longer serves mixed") == 1 for worker in ours))
    eventually(lambda: redis_client.llen("queue:mixed") == 30)
    eventually(lambda: [found["queues"] for found in ruby(SEEN)] == [["own"], ["own"]])

    start_ruby(queues=["mixed"])

    eventually(lambda: redis_client.llen(LEDGER) == 30)
    assert Counter(entries(redis_client)) == Counter(range(30))
    assert {line["by"] for line in lines(redis_client)} == {"ruby"}
    assert [worker.log.count("no longer serves mixed") for worker in ours] == [1, 1]
