"""Ruby's data API and Web UI find, move and delete what Python wrote, and leave no duplicates behind."""

import json
import time
from typing import Any

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support import python_jobs
from interop_tests.support.ledger import masked, members, only_job, only_member, raw_jobs
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

# Text, floats and integers that a JSON writer other than Ruby's would spell otherwise.
ARGUMENTS: list[Any] = ["é😀\u2028/\x7f", 1e22, 5e-324, 1e-5, 10**30, 0.1, {"z": None, "a": [1.0]}]
# A time to come that is no whole second.
AT = 4_000_000_000.25


@pytest.fixture
def failed_in_python(redis_client: redis.Redis, start_python: StartPython) -> bytes:
    """The raw retry entry of a job that failed in Python."""
    with start_python():
        python_jobs.backtrace_job.perform_async("raise", "boom", *ARGUMENTS)
        return eventually(lambda: only_member(redis_client, "retry"))


@pytest.fixture
def six_failures(redis_client: redis.Redis, start_python: StartPython) -> list[str]:
    """The jids of six jobs that failed in Python, in the order of their retries."""
    with start_python():
        python_jobs.backtrace_job.perform_bulk([["raise", str(number), *ARGUMENTS] for number in range(6)])
        return eventually(lambda: jids if len(jids := _jids(redis_client, "retry")) == 6 else None)


def _jids(client: redis.Redis, set_name: str) -> list[str]:
    return [json.loads(member)["jid"] for member in members(client, set_name)]


def test_ruby_reschedules_what_python_scheduled(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """
    Ruby finds the member by re-encoding it, so a different spelling would leave a second entry that is due at once.
    """
    python_jobs.fixture_job.perform_in(600, "echo", "echo", *ARGUMENTS)
    [before] = members(redis_client, "schedule")
    at = time.time() + 9_000

    ruby("Sidekiq::ScheduledSet.new.first.reschedule(at)", at=at)

    assert members(redis_client, "schedule") == [before]
    assert redis_client.zscore("schedule", before) == pytest.approx(at, abs=0.001)


def test_ruby_reschedules_what_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The same for an entry that was rewritten by a failure, including its backtrace."""
    at = time.time() + 9_000

    ruby("Sidekiq::RetrySet.new.first.reschedule(at)", at=at)

    assert members(redis_client, "retry") == [failed_in_python]
    assert redis_client.zscore("retry", failed_in_python) == pytest.approx(at, abs=0.001)


def test_ruby_retries_at_once_what_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The entry moves to its queue, and a manual retry does not count as an attempt."""
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


def test_each_entry_of_the_retry_set_goes_where_ruby_sends_it(
    redis_client: redis.Redis, ruby: RunRuby, six_failures: list[str]
) -> None:
    """Retried, killed, deleted, rescheduled, queued or left alone: afterwards each entry exists once, in one place."""
    retried, killed, _deleted, later, queued, left = six_failures
    before = dict(zip(six_failures, members(redis_client, "retry"), strict=True))
    left_at = redis_client.zscore("retry", before[left])
    at = time.time() + 90_000

    ruby(
        """
        set = Sidekiq::RetrySet.new
        retried, killed, deleted, later, queued = jids.map { |jid| set.find_job(jid) }
        retried.retry
        killed.kill
        deleted.delete
        later.reschedule(at)
        queued.add_to_queue
        """,
        jids=six_failures,
        at=at,
    )

    assert members(redis_client, "retry") == [before[left], before[later]]
    assert redis_client.zscore("retry", before[left]) == left_at
    assert redis_client.zscore("retry", before[later]) == pytest.approx(at, abs=0.001)
    assert members(redis_client, "dead") == [before[killed]]
    assert [masked(raw) for raw in raw_jobs(redis_client, "default")] == [
        masked(before[queued]),
        masked(before[retried]).replace(b'"retry_count":0', b'"retry_count":-1'),
    ]


def test_each_entry_of_the_dead_set_goes_where_ruby_sends_it(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """One by one, then all the others: none is left and none is duplicated."""
    with start_python():
        python_jobs.retry_zero_job.perform_bulk([["raise", str(number), *ARGUMENTS] for number in range(5)])
        jids = eventually(lambda: jids if len(jids := _jids(redis_client, "dead")) == 5 else None)

    ruby(
        """
        set = Sidekiq::DeadSet.new
        deleted, retried = jids.first(2).map { |jid| set.find_job(jid) }
        deleted.delete
        retried.retry
        """,
        jids=jids,
    )
    left = _jids(redis_client, "dead")
    ruby("Sidekiq::DeadSet.new.retry_all")

    assert left == jids[2:]
    assert redis_client.zcard("dead") == 0
    assert sorted(json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")) == sorted(jids[1:])


def test_ruby_takes_one_of_several_jobs_that_are_due_at_the_same_time(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Ruby removes all entries with a score and puts back those of other jids: with our bytes and our score."""
    jids = [str(jid) for jid in python_jobs.fixture_job.perform_bulk([["echo", number] for number in range(4)], at=AT)]
    before = {json.loads(member)["jid"]: member for member in members(redis_client, "schedule")}

    ruby(
        """
        queued, deleted = jids.map { |jid| Sidekiq::ScheduledSet.new.fetch(at, jid).first }
        queued.add_to_queue
        deleted.delete
        """,
        jids=jids[:2],
        at=AT,
    )

    assert redis_client.zrange("schedule", 0, -1, withscores=True) == sorted((before[jid], AT) for jid in jids[2:])
    [queued] = raw_jobs(redis_client, "default")
    assert json.loads(queued)["jid"] == jids[0]


def test_ruby_finds_python_jobs_by_jid_text_and_time(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """`find_job` and `scan` look through the raw text; `fetch` goes by score, as the links of the Web UI do."""
    jid = python_jobs.fixture_job.perform_at(AT, "ok", "a needle")
    python_jobs.python_job.perform_at(AT + 100, "ok")

    found = ruby(
        """
        set = Sidekiq::ScheduledSet.new
        [
          [set.find_job(jid)], set.scan("a needle").to_a, set.scan("*FixtureJob*").to_a,
          set.fetch(at), set.fetch((at - 1)..(at + 1)), set.fetch(at, jid)
        ].map { |entries| entries.map { |entry| [entry.jid, entry.klass, entry.args, entry.score, entry.at.to_f] } }
        """,
        jid=jid,
        at=AT,
    )

    assert found == [[[jid, "FixtureJob", ["ok", "a needle"], AT, AT]]] * 6


def test_ruby_reads_every_field_of_a_job_that_failed_in_python(
    redis_client: redis.Redis, ruby: RunRuby, failed_in_python: bytes
) -> None:
    """The accessors of `JobRecord`, with times as Ruby's times whatever their unit."""
    fields = ruby(
        """
        entry = Sidekiq::RetrySet.new.first
        {"shown" => [entry.klass, entry.display_class, entry.display_args[2], entry.queue, entry.jid, entry.tags.to_a],
         "error" => [entry["error_class"], entry["error_message"], entry["retry_count"], entry.error?],
         "backtrace" => entry.error_backtrace.first,
         "ages" => [entry.created_at, entry.enqueued_at].map { |time| Time.now - time } + [entry.latency]}
        """
    )

    assert fields["shown"][:4] == ["BacktraceJob", "BacktraceJob", ARGUMENTS[0], "default"]
    assert fields["error"] == ["interop_tests.support.python_jobs.FixtureError", "boom", 0, True]
    assert fields["backtrace"].endswith("in `_raise'")
    assert all(0 <= age < 60 for age in fields["ages"])


def test_ruby_walks_through_a_long_queue_of_python(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Page by page, newest first; a job in the middle is found and deleted by its raw text."""
    jids = python_jobs.fixture_job.perform_bulk([["echo", number, *ARGUMENTS] for number in range(120)])

    size, order, deleted = ruby(
        "queue = Sidekiq::Queue.new; [queue.size, queue.map(&:jid), queue.find_job(jid).delete]", jid=jids[60]
    )

    assert (size, order, deleted) == (120, list(reversed(jids)), True)
    assert [json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")] == [
        jid for jid in reversed(jids) if jid != jids[60]
    ]


def test_ruby_clears_queues_and_sets_of_python(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """`Queue.all` lists ours; `clear` leaves neither jobs nor names behind."""
    python_jobs.fixture_job.perform_async("ok")
    python_jobs.python_job.perform_async("ok")
    python_jobs.fixture_job.perform_in(600, "ok")

    names = ruby(
        """
        Sidekiq::ScheduledSet.new.clear
        Sidekiq::Queue.all.map { |queue| queue.clear; queue.name }
        """
    )

    assert names == ["default", "python"]
    assert not redis_client.exists("queue:default", "queue:python", "schedule")
    assert redis_client.smembers("queues") == set()


def test_ruby_measures_the_latency_of_what_python_queued(ruby: RunRuby) -> None:
    """`enqueued_at` is in the unit that this release reads: seconds, or milliseconds since 8.0."""
    python_jobs.fixture_job.perform_async("ok")

    assert 0 <= ruby("Sidekiq::Queue.new.latency") < 60


def test_ruby_retries_all_and_kills_all_of_python(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Twenty failures, all retried at once, then all killed: none is lost or duplicated."""
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
