"""A process that must stop before its jobs are done requeues them, and a process of the other language runs them."""

import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, lines, open_gate, raw_jobs
from tests.support.waiting import eventually


def test_python_finishes_what_a_stopped_ruby_gave_back(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Ruby's deadline passes, its jobs are back in the queue unchanged, and Python runs them."""
    # No thread is idle: one that is still in BRPOP would take back what was given back, and lose it.
    worker = start_ruby(timeout_seconds=1, concurrency=2)
    ruby('2.times { |n| FixtureJob.perform_async("ledger_and_wait_for", key, n, gate) }', key=LEDGER, gate=GATE)
    eventually(lambda: redis_client.llen(LEDGER) == 2)

    worker.stop()
    given_back = raw_jobs(redis_client, "default")
    open_gate(redis_client)
    start_python()

    eventually(lambda: redis_client.llen(LEDGER) == 4)
    assert len(given_back) == 2
    assert sorted((line["by"], line["entry"]) for line in lines(redis_client)[2:]) == [("python", 0), ("python", 1)]


def test_ruby_finishes_what_a_stopped_python_gave_back(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """
    Python's deadline passes, its jobs are back in the queue byte for byte as Ruby pushed them, and Ruby runs them.
    """
    ruby('2.times { |n| FixtureJob.perform_async("ledger_and_wait_for", key, n, gate) }', key=LEDGER, gate=GATE)
    pushed = raw_jobs(redis_client, "default")
    worker = start_python("-t", "1")
    eventually(lambda: redis_client.llen(LEDGER) == 2)

    exit_code = worker.stop()
    given_back = raw_jobs(redis_client, "default")
    open_gate(redis_client)
    start_ruby()

    eventually(lambda: redis_client.llen(LEDGER) == 4)
    assert exit_code == 0
    assert sorted(given_back) == sorted(pushed)
    assert sorted((line["by"], line["entry"]) for line in lines(redis_client)[2:]) == [("ruby", 0), ("ruby", 1)]


def test_what_a_killed_python_had_in_flight_is_not_lost_to_the_fleet(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """A sibling in Python returns the job to the queue, and then either language may run it."""
    doomed = start_python("-q", "default")
    ruby('FixtureJob.perform_async("ledger_and_wait_for", key, 1, gate)', key=LEDGER, gate=GATE)
    eventually(lambda: redis_client.llen(LEDGER) == 1)

    doomed.kill()
    open_gate(redis_client)
    start_python("-q", "nothing-here")
    start_ruby()

    eventually(lambda: redis_client.llen(LEDGER) == 2, within_seconds=60)
    assert lines(redis_client)[1]["by"] == "ruby"


def test_ruby_tidying_up_behind_a_killed_python_does_not_lose_its_jobs(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Ruby removes our entry from `processes` once its hash has expired; recovery does not depend on it."""
    doomed = start_python("-q", "default")
    ruby('FixtureJob.perform_async("ledger_and_wait_for", key, 1, gate)', key=LEDGER, gate=GATE)
    eventually(lambda: redis_client.llen(LEDGER) == 1)
    identity = doomed.identity
    doomed.kill()
    redis_client.delete(identity)

    ruby("Sidekiq::ProcessSet.new")
    assert redis_client.smembers("processes") == set()
    open_gate(redis_client)
    start_python("-q", "default")

    eventually(lambda: redis_client.llen(LEDGER) == 2, within_seconds=60)
