"""
GitLab's reliable fetcher in Ruby and ours in Python on one Redis: each recovers the jobs of its own dead processes.
"""

from collections import Counter
from typing import cast

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, entries, lines, open_gate
from tests.support.waiting import eventually

# Debian's package says under 7 and 8 that it is active, and is not.
pytestmark = pytest.mark.releases(before="7")

# Ruby's threads pause for five seconds when they find nothing; Python alone would need seven for these.
JOBS = 350
PROGRAM = "reliable_fetch.rb"


def test_both_fetchers_share_a_queue(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """350 jobs, each run once, by both languages; neither leaves anything in flight."""
    postpone_cleaning(redis_client)
    theirs = start_ruby(program=PROGRAM, concurrency=5)
    ours = start_python("-q", "default", "-c", "5")
    push(ruby, JOBS)

    eventually(lambda: redis_client.llen(LEDGER) >= JOBS, within_seconds=60)
    eventually(lambda: working(redis_client) == [])
    ours.stop()
    theirs.kill()

    assert Counter(entries(redis_client)) == Counter(range(JOBS))
    assert {line["by"] for line in lines(redis_client)} == {"ruby", "python"}
    assert redis_client.llen("queue:default") == 0


def test_what_a_killed_ruby_held_comes_back_and_python_runs_it(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """The fetcher counts the interruption in the payload; Python runs such a job like any other."""
    postpone_cleaning(redis_client)
    hold(ruby, 3)
    doomed = start_ruby(program=PROGRAM, concurrency=3)
    eventually(lambda: redis_client.llen(LEDGER) == 3, within_seconds=60)
    doomed.kill()
    open_gate(redis_client)
    start_python("-q", "default")

    # The dead one's heartbeat is over, and so is the hour in which nobody else cleans up.
    redis_client.delete(*redis_client.keys("reliable-fetcher-*"))
    start_ruby(program=PROGRAM, queues=["somewhere-else"])

    eventually(lambda: redis_client.llen(LEDGER) == 6, within_seconds=60)
    assert Counter(line["by"] for line in lines(redis_client)[3:]) == {"python": 3}
    eventually(lambda: working(redis_client) == [])


def test_what_a_killed_python_held_is_left_to_python_and_comes_back(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Ruby's clean-up ignores jobs in flight in Python; our own recovery requeues them, and Ruby may run them."""
    hold(ruby, 3)
    doomed = start_python("-q", "default", "-c", "3")
    eventually(lambda: redis_client.llen(LEDGER) == 3, within_seconds=60)
    doomed.kill()
    open_gate(redis_client)

    start_ruby(program=PROGRAM)
    eventually(lambda: redis_client.exists("reliable-fetcher-cleanup-lock"))
    start_python("-q", "nothing-here")

    eventually(lambda: redis_client.llen(LEDGER) == 6, within_seconds=60)
    assert Counter(line["by"] for line in lines(redis_client)[3:]) == {"ruby": 3}


def test_what_ruby_s_deadline_cut_off_goes_on_in_python(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """A stop writes `interrupted_count` into the payload and requeues the job, once."""
    postpone_cleaning(redis_client)
    hold(ruby, 2)
    worker = start_ruby(program=PROGRAM, concurrency=2, timeout_seconds=1)
    eventually(lambda: redis_client.llen(LEDGER) == 2, within_seconds=60)

    worker.stop()
    given_back = redis_client.lrange("queue:default", 0, -1)
    assert [job.count(b'"interrupted_count":1') for job in given_back] == [1, 1]
    open_gate(redis_client)
    start_python("-q", "default")

    eventually(lambda: redis_client.llen(LEDGER) >= 4, within_seconds=60)
    assert Counter(line["by"] for line in lines(redis_client)[2:]) == {"python": 2}


def postpone_cleaning(client: redis.Redis) -> None:
    """A process that starts may clean up before its own first heartbeat, and give back what it has just begun."""
    client.set("reliable-fetcher-cleanup-lock", 1)


def push(ruby: RunRuby, count: int) -> None:
    """That many short jobs, numbered."""
    ruby(
        "count.times { |number| FixtureJob.perform_async('ledger_and_sleep', key, number, 0.1) }",
        key=LEDGER,
        count=count,
    )


def hold(ruby: RunRuby, count: int) -> None:
    """That many jobs that run until the gate is opened."""
    ruby(
        "count.times { |number| FixtureJob.perform_async('ledger_and_wait_for', key, number, gate) }",
        key=LEDGER,
        gate=GATE,
        count=count,
    )


def working(client: redis.Redis) -> list[bytes]:
    """The keys in which GitLab's fetcher holds what runs."""
    return cast(list[bytes], client.keys("working:queue:*"))
