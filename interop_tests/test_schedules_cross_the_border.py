"""Each language promotes what the other schedules, and the queue then contains what Ruby would have put there."""

import json
import time

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, entries, make_due, masked, members, raw_jobs
from interop_tests.support.recordings import recording
from interop_tests.support.ruby import RubyRelease
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

# Workers that promote and never fetch the jobs of these tests.
IDLE_QUEUE = "nothing-here"

# Client middleware in Ruby, and one poll, for every release of Sidekiq.
SETTINGS = """
settings = Sidekiq.respond_to?(:default_configuration) ? Sidekiq.default_configuration : Sidekiq
"""
COUNTING = (
    SETTINGS
    + """
counting = Class.new do
  def call(_job_class, job, _queue, _pool)
    job["counted"] = (job["counted"] || 0) + 1
    yield
  end
end
settings.client_middleware { |chain| chain.add(counting) }
"""
)
LOOKING_UP = (
    SETTINGS
    + """
Object.const_set("RUBY_CLASS", Class.new { include FIXTURE_JOB })
looking_up = Class.new do
  def call(job_class, _job, _queue, _pool)
    Object.const_get(job_class)
    yield
  end
end
settings.client_middleware { |chain| chain.add(looking_up) }
"""
)
POLL_ONCE = """
require "sidekiq/scheduled"
enqueuer = Sidekiq::Scheduled::Enq
takes_settings = enqueuer.instance_method(:initialize).arity != 0
begin
  (takes_settings ? enqueuer.new(settings) : enqueuer.new).enqueue_jobs
rescue NameError => error
  error.message
end
"""
# The class of this error depends on Ruby's client for Redis.
POLL_ONCE_WITHOUT_MEMORY = SETTINGS + POLL_ONCE.replace("rescue NameError", "rescue StandardError")


def test_python_schedules_ruby_promotes_python_performs(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Ruby's poller alone moves the job; Python runs what it finds in the queue."""
    with start_ruby(queues=[IDLE_QUEUE]):
        python_jobs.python_job.perform_in(0.3, "ledger", LEDGER, "done")
        eventually(lambda: redis_client.llen("queue:python") == 1)

    start_python("-q", "python")

    assert eventually(lambda: entries(redis_client)) == ["done"]


def test_ruby_schedules_python_promotes_ruby_performs(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Python's poller alone moves the job; Ruby runs what it finds in the queue."""
    with start_python("-q", IDLE_QUEUE):
        ruby('FixtureJob.perform_in(0.3, "ledger", key, "done")', key=LEDGER)
        eventually(lambda: redis_client.llen("queue:default") == 1)

    start_ruby()

    assert eventually(lambda: entries(redis_client)) == ["done"]


def test_python_promotes_a_ruby_job_without_the_client_middleware_of_ruby(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """It ran when Ruby scheduled the job; in Ruby it would run again when the job comes due."""
    with start_python("-q", IDLE_QUEUE):
        ruby(COUNTING + 'FixtureJob.perform_in(0.3, "ok")')
        [raw] = eventually(lambda: raw_jobs(redis_client, "default"))

    assert json.loads(raw)["counted"] == 1


@pytest.mark.parametrize(("ruby_class", "arrived"), [("Unknown", 0), ("PythonOnly", 1)])
def test_client_middleware_of_ruby_that_looks_up_the_class_loses_jobs_of_python(
    redis_client: redis.Redis, ruby: RunRuby, ruby_class: str, arrived: int
) -> None:
    """Ruby's poller removes the job before the middleware raises. An empty class of that name in Ruby helps."""
    sidekiq.ruby_job("PythonOnly", queue="python").perform_at(time.time() + 60)
    make_due(redis_client, "schedule")

    ruby(LOOKING_UP.replace("RUBY_CLASS", ruby_class) + POLL_ONCE)

    assert (redis_client.zcard("schedule"), redis_client.llen("queue:python")) == (0, arrived)


def test_a_full_redis_makes_rubys_poller_lose_a_due_job(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """It removes the job, which Redis allows, and then may not push it; the job may be one of Python's."""
    python_jobs.python_job.perform_at(time.time() + 60, "ok")
    make_due(redis_client, "schedule")
    redis_client.config_set("maxmemory", 1)

    try:
        error = ruby(POLL_ONCE_WITHOUT_MEMORY)
    finally:
        redis_client.config_set("maxmemory", 0)

    assert error.startswith("OOM")
    assert (redis_client.zcard("schedule"), redis_client.llen("queue:python")) == (0, 0)


PROMOTIONS = [
    "promoted_from_schedule",
    "promoted_from_retry",
    "promoted_without_retry_and_queue",
    "promoted_options_of_the_class_are_not_added",
    "unknown_keys_promoted_from_schedule",
    "unknown_keys_promoted_from_retry",
    "foreign_spelling_promoted",
]


@pytest.mark.parametrize("situation", PROMOTIONS)
def test_a_promoted_payload_has_the_bytes_that_ruby_left(
    ruby_release: RubyRelease, redis_client: redis.Redis, start_python: StartPython, situation: str
) -> None:
    """Unknown keys, big integers, odd floats and escapes come out as Ruby's own re-encoding writes them."""
    recorded = recording(situation, ruby_release.payloads.name)
    redis_client.zadd(recorded.input["from"], {recorded.before: recorded.input["score"]})

    with start_python("-q", IDLE_QUEUE):
        eventually(lambda: redis_client.llen(recorded.key) == 1)

    [promoted] = raw_jobs(redis_client, recorded.key.removeprefix("queue:"))
    assert masked(promoted) == masked(recorded.members[0])
    assert redis_client.zcard(recorded.input["from"]) == 0


def test_two_pollers_of_different_languages_promote_each_job_once(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """500 jobs come due at once while both poll as fast as they can."""
    start_ruby(queues=[IDLE_QUEUE], poll_seconds=0.02)
    start_python("-q", IDLE_QUEUE)
    at = time.time() + 0.5

    python_jobs.python_job.perform_bulk([["ledger", LEDGER, number] for number in range(500)], at=at)

    eventually(lambda: redis_client.zcard("schedule") == 0 and redis_client.llen("queue:python") >= 500)
    queued = raw_jobs(redis_client, "python")
    assert len(queued) == len(set(queued)) == 500


def test_a_retry_written_by_python_is_promoted_by_ruby_with_the_same_keys(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Only `enqueued_at` changes on the way from `retry` to the queue."""
    with start_python("-q", "python"):
        python_jobs.python_job.perform_async("raise", "boom")
        eventually(lambda: redis_client.zcard("retry") == 1)
    [failed] = members(redis_client, "retry")

    with start_ruby(queues=[IDLE_QUEUE]):
        make_due(redis_client, "retry")
        eventually(lambda: redis_client.llen("queue:python") == 1)

    [promoted] = raw_jobs(redis_client, "python")
    assert masked(promoted) == masked(failed)
    assert promoted != failed
