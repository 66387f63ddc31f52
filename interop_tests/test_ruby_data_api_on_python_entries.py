"""Ruby's data API and Web UI find, move and delete what Python wrote, and leave no ghost behind."""

import json
import time

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support import python_jobs
from interop_tests.support.ledger import masked, members, only_job, only_member, raw_jobs
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

# Text, floats and integers that a JSON writer other than Ruby's would spell otherwise.
ARGUMENTS = ["é😀\u2028/\x7f", 1e22, 5e-324, 1e-5, 10**30, 0.1, {"z": None, "a": [1.0]}]


@pytest.fixture
def failed_in_python(redis_client: redis.Redis, start_python: StartPython) -> bytes:
    """The raw retry entry of a job that failed in Python."""
    with start_python():
        python_jobs.backtrace_job.perform_async("raise", "boom", *ARGUMENTS)
        return eventually(lambda: only_member(redis_client, "retry"))


def test_ruby_reschedules_what_python_scheduled(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Ruby finds the member by writing it anew, so one spelling more would leave a second entry that is due at once."""
    python_jobs.fixture_job.perform_in(600, "echo", "echo", *ARGUMENTS)
    [before] = members(redis_client, "schedule")
    at = time.time() + 9_000

    ruby("Sidekiq::ScheduledSet.new.first.reschedule(at)", at=at)

    assert members(redis_client, "schedule") == [before]
    assert redis_client.zscore("schedule", before) == pytest.approx(at, abs=0.001)


def test_ruby_reschedules_what_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The same for an entry that was rewritten by a failure, backtrace and all."""
    at = time.time() + 9_000

    ruby("Sidekiq::RetrySet.new.first.reschedule(at)", at=at)

    assert members(redis_client, "retry") == [failed_in_python]
    assert redis_client.zscore("retry", failed_in_python) == pytest.approx(at, abs=0.001)


def test_ruby_retries_at_once_what_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The entry moves to its queue, and a retry by hand is free."""
    ruby("Sidekiq::RetrySet.new.first.retry")

    [queued] = raw_jobs(redis_client, "default")
    assert masked(queued) == masked(failed_in_python).replace(b'"retry_count":0', b'"retry_count":-1')
    assert redis_client.zcard("retry") == 0


def test_ruby_kills_what_failed_in_python(redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes) -> None:
    """The entry moves to the dead set byte for byte."""
    ruby("Sidekiq::RetrySet.new.first.kill")

    assert members(redis_client, "dead") == [failed_in_python]
    assert redis_client.zcard("retry") == 0


def test_ruby_deletes_what_failed_in_python(redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes) -> None:
    """`delete` by value finds the entry."""
    ruby("Sidekiq::RetrySet.new.first.delete")

    assert redis_client.zcard("retry") == 0


def test_ruby_finds_a_python_job_by_its_jid(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """`find_job` scans for the jid; the Web UI's links are made of score and jid."""
    jid = python_jobs.fixture_job.perform_in(600, "ok")

    found = ruby(
        "Sidekiq::ScheduledSet.new.find_job(jid).then { |entry| [entry.jid, entry.klass, entry.args] }", jid=jid
    )

    assert found == [jid, "FixtureJob", ["ok"]]


def test_ruby_deletes_what_python_queued(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """`Queue#find_job` and `JobRecord#delete`, by the raw text."""
    jid = python_jobs.fixture_job.perform_async("echo", "echo", *ARGUMENTS)
    python_jobs.fixture_job.perform_async("ok")

    assert ruby("Sidekiq::Queue.new.find_job(jid).delete", jid=jid) is True

    assert redis_client.llen("queue:default") == 1


def test_ruby_measures_the_latency_of_what_python_queued(ruby: RunRuby) -> None:
    """`enqueued_at` is in the unit that this release reads."""
    python_jobs.fixture_job.perform_async("ok")

    assert 0 <= ruby("Sidekiq::Queue.new.latency") < 60


def test_ruby_retries_all_and_kills_all_of_python(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Twenty failures, all retried at once, then all killed: none is lost, none doubled."""
    with start_python():
        jids = python_jobs.fixture_job.perform_bulk([["raise", str(number)] for number in range(20)])
        eventually(lambda: redis_client.zcard("retry") == 20)
    ruby("Sidekiq::RetrySet.new.retry_all")
    queued = [json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")]
    with start_python():
        eventually(lambda: redis_client.zcard("retry") == 20)

    ruby("Sidekiq::RetrySet.new.kill_all")

    dead = [json.loads(raw)["jid"] for raw in members(redis_client, "dead")]
    assert sorted(queued) == sorted(dead) == sorted(str(jid) for jid in jids)
    assert redis_client.zcard("retry") == 0


def test_the_web_ui_deletes_what_python_queued(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """The queue page sends the raw text through an HTML form and back."""
    python_jobs.fixture_job.perform_async("echo", "echo", *ARGUMENTS, "\"<b>&amp;'")

    status = ruby(
        """
        raw = Sidekiq.redis { |conn| conn.lindex("queue:default", 0) }
        WebUi.new.press("/queues/default", {"key_val" => raw}, to: "/queues/default/delete")
        """,
        web=True,
    )

    assert (status, redis_client.llen("queue:default")) == (302, 0)


def test_the_web_ui_shows_and_retries_what_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The Retries page lists it, its own page shows the backtrace, and the button retries it."""
    listed, shown, status = ruby(
        """
        entry = Sidekiq::RetrySet.new.first
        page = "/retries/#{entry.score}-#{entry.jid}"
        ui = WebUi.new
        [ui.visit("/retries"), ui.visit(page), ui.press(page, {"retry" => "1"})]
        """,
        web=True,
    )

    assert "BacktraceJob" in listed
    assert "python_jobs.py" in shown
    assert (status, redis_client.zcard("retry"), redis_client.llen("queue:default")) == (302, 0, 1)


def test_the_web_ui_shows_what_python_gave_up(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """The Dead page lists our entries, and raw text that is no job."""
    with start_python():
        jid = python_jobs.retry_zero_job.perform_async("raise", "no more")
        eventually(lambda: only_job(redis_client, "dead"))
        redis_client.lpush("queue:default", b"not json at all")
        eventually(lambda: redis_client.zcard("dead") == 2)

    listed = ruby('WebUi.new.visit("/morgue")', web=True)

    assert jid in listed
    assert "not json at all" in listed
