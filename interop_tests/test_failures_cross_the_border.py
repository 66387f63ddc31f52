"""A job that fails in one language is retried by the other until it ends, and each reads what the other wrote."""

import json
from typing import Any

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER, make_due, only_job
from sidekiq_py.api import DeadSet, RetrySet
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

ERROR_KEYS = ["error_message", "error_class", "failed_at", "retry_count", "retried_at"]


def fails(job: dict[str, Any] | None, times: int) -> bool:
    """Whether the job in the retry or dead set has failed that often."""
    return job is not None and job["retry_count"] == times - 1


def test_what_failed_in_ruby_is_retried_by_python_until_it_succeeds(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """The retry that Ruby wrote comes due in Python."""
    worker = start_ruby()
    jid = ruby('FixtureJob.perform_async("raise_until", "runs", 1, key, "done")', key=LEDGER)
    eventually(lambda: fails(only_job(redis_client, "retry"), 1))
    worker.kill()
    start_python()

    make_due(redis_client, "retry")

    [line] = eventually(lambda: redis_client.lrange(LEDGER, 0, -1))
    assert (json.loads(line)["by"], json.loads(line)["jid"]) == ("python", jid)
    assert redis_client.zcard("retry") == 0


def test_what_failed_in_python_is_retried_by_ruby_until_it_succeeds(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """The retry that Python wrote comes due in Ruby."""
    worker = start_python()
    jid = python_jobs.fixture_job.perform_async("raise_until", "runs", 1, LEDGER, "done")
    eventually(lambda: fails(only_job(redis_client, "retry"), 1))
    worker.stop()
    start_ruby()

    make_due(redis_client, "retry")

    [line] = eventually(lambda: redis_client.lrange(LEDGER, 0, -1))
    assert (json.loads(line)["by"], json.loads(line)["jid"]) == ("ruby", jid)
    assert redis_client.zcard("retry") == 0


@pytest.mark.parametrize("first", ["ruby", "python"])
def test_languages_take_turns_at_failing_until_the_job_is_dead(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython, first: str
) -> None:
    """
    Three runs, in turn: the count continues, the time of the first failure stays, and the order of keys is Ruby's.
    """
    start = {"ruby": start_ruby, "python": start_python}
    second = "python" if first == "ruby" else "ruby"
    worker = start[first]()
    # Its retries are minutes away, so that only the test makes them due.
    python_jobs.retry_in_job.set(retry=2).perform_async("raise", "boom")
    once = eventually(lambda: only_job(redis_client, "retry"))
    worker.kill()

    with start[second]():
        make_due(redis_client, "retry")
        eventually(lambda: fails(only_job(redis_client, "retry"), 2))
    with start[first]():
        make_due(redis_client, "retry")
        dead = eventually(lambda: only_job(redis_client, "dead"))

    assert (dead["jid"], dead["retry_count"], dead["failed_at"]) == (once["jid"], 2, once["failed_at"])
    assert list(dead)[-5:] == ERROR_KEYS
    assert dead["retried_at"] > once["failed_at"]
    assert redis_client.zcard("retry") == 0


def test_ruby_reads_the_errors_that_python_wrote(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """A retry with class, message and packed backtrace, as the Retries page shows it; a dead job whose block ran."""
    start_python()
    python_jobs.backtrace_job.perform_async("raise", "größer \u2028 boom")
    jid = python_jobs.exhausted_job.perform_async("raise", "no more")
    eventually(lambda: only_job(redis_client, "retry") and only_job(redis_client, "dead"))

    retry, dead = ruby(
        """
        entry = Sidekiq::RetrySet.new.first
        retry_entry = {
          "class" => entry["error_class"], "message" => entry["error_message"], "backtrace" => entry.error_backtrace,
          "display_class" => entry.display_class, "args" => entry.display_args,
          "ages" => [Time.now.to_f - entry.created_at.to_f, entry.at.to_f - entry.created_at.to_f]
        }
        [retry_entry, Sidekiq::DeadSet.new.map { |job| [job.jid, job.klass, job["retry_count"]] }]
        """
    )

    assert retry["class"].endswith("FixtureError")
    assert retry["message"] == "größer \u2028 boom"
    assert any("python_jobs.py" in line for line in retry["backtrace"])
    assert (retry["display_class"], retry["args"]) == ("BacktraceJob", ["raise", "größer \u2028 boom"])
    assert all(-1 < age < 120 for age in retry["ages"])
    assert dead == [[jid, "ExhaustedJob", 0]]
    [line] = eventually(lambda: redis_client.lrange("fixture:exhausted", 0, -1))
    assert json.loads(line) == {"jid": jid, "error": "no more", "by": "python"}


def test_python_reads_the_errors_that_ruby_wrote(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby
) -> None:
    """The data API unpacks the backtrace of a retry, and shows the job that Ruby gave up on."""
    start_ruby()
    jid = ruby(
        """
        BacktraceJob.perform_async("raise", "boom", "Fixtures::NestedError", ["app/a.rb:1:in `x'", "app/b.rb:2"])
        RetryZeroJob.perform_async("raise", "no more")
        """
    )
    eventually(lambda: only_job(redis_client, "retry") and only_job(redis_client, "dead"))

    [entry] = RetrySet()
    [dead] = DeadSet()

    assert (entry.error_class, entry.error_message) == ("Fixtures::NestedError", "boom")
    assert entry.error_backtrace == ["app/a.rb:1:in `x'", "app/b.rb:2"]
    assert (dead.jid, dead.error_message) == (jid, "no more")
