"""
Our data API finds, moves and deletes what Ruby wrote.

What each of its moves leaves is held against the recordings of all releases in `tests/api/test_moves_as_recorded.py`.
"""

import pytest
import redis

from interop_tests.conftest import RunRuby
from interop_tests.support.recordings import recording
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.api import Queue, RetrySet, ScheduledSet

pytestmark = pytest.mark.usefixtures("python_client")


def test_a_job_that_ruby_queued_is_found_and_deleted(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Found by jid; the other job stays."""
    jid, other = ruby('[FixtureJob.perform_async("echo", 1e22, "é"), FixtureJob.perform_async("ok")]')

    job = Queue("default").find_job(jid)

    assert job is not None
    assert (job.klass, job.args) == ("FixtureJob", ["echo", 1e22, "é"])
    assert job.delete() is True
    assert [left.jid for left in Queue("default")] == [other]


def test_what_ruby_scheduled_comes_in_the_order_of_its_times(ruby: RunRuby) -> None:
    """Scores and jids of three entries."""
    jids = ruby("[300, 100, 200].map { |seconds| FixtureJob.perform_in(seconds, 1) }")

    entries = list(ScheduledSet())

    assert sorted(entries, key=lambda entry: entry.score) in (entries, entries[::-1])
    assert [entry.jid for entry in sorted(entries, key=lambda entry: entry.score)] == [jids[1], jids[2], jids[0]]


def test_all_retries_of_ruby_are_retried_at_once(ruby_release: RubyRelease, redis_client: redis.Redis) -> None:
    """`retry_all` over many entries; none is lost or duplicated."""
    payload = recording("retried_by_api", ruby_release.payloads.name).before
    jids = [f"{number:024x}" for number in range(300)]
    redis_client.zadd("retry", {payload.replace(b"f" * 24, jid.encode()): 4e9 + n for n, jid in enumerate(jids)})

    RetrySet().retry_all()

    assert sorted(job.jid or "" for job in Queue("default")) == jids
    assert redis_client.zcard("retry") == 0
