"""Our data API and Ruby's show the same data for the same Redis."""

import base64
import json
from typing import Any

import pytest
import redis

from interop_tests.conftest import RunRuby
from interop_tests.support.recordings import recordings
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.api import DeadSet, History, Queue, RetrySet, Stats

pytestmark = pytest.mark.usefixtures("python_client")


def recorded_members(release: RubyRelease) -> list[bytes]:
    """Every payload that Ruby wrote in the recordings of its release, each once."""
    found = recordings(release.payloads.name)
    jobs = [one for one in found if one.type in ("list", "zset") and not one.key.endswith("-signals")]
    members = dict.fromkeys(member for recorded in jobs for member in recorded.members)
    return [member for member in members if release.numbers >= first_reader(member)]


def first_reader(member: bytes) -> tuple[int, ...]:
    """The first release that reads all of a payload rightly; ours reads what any release wrote."""
    if b'"created_at":1699999000500' in member:
        return (8, 0, 0)  # milliseconds; read as seconds before, some 50,000 years ahead
    return (6, 2, 2) if b'"display_class"' in member else (6, 0, 0)


def test_jobs_look_the_same(ruby_release: RubyRelease, redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Every recorded payload in the dead set: class, arguments, times and errors as Ruby reads them."""
    redis_client.zadd("dead", {member: float(n) for n, member in enumerate(recorded_members(ruby_release))})

    theirs = ruby(
        """
        Sidekiq::DeadSet.new.map do |job|
          [job.jid, job.display_class, job.queue, job.tags, job.created_at.to_f, job.error_backtrace, job.score]
        end
        """
    )

    ours: list[Any] = [
        [
            job.jid,
            job.display_class,
            job.queue,
            job.tags,
            job.created_at.timestamp() if job.created_at else 0.0,
            job.error_backtrace,
            job.score,
        ]
        for job in DeadSet()
    ]
    assert len(ours) == redis_client.zcard("dead")
    assert [row[:4] + row[5:] for row in ours] == [row[:4] + row[5:] for row in theirs]
    assert [row[4] for row in ours] == pytest.approx([row[4] for row in theirs])


def test_arguments_look_the_same(ruby_release: RubyRelease, redis_client: redis.Redis, ruby: RunRuby) -> None:
    """For plain jobs and for raw text; for wrapped jobs Ruby also shows some of Rails' markers."""
    plain = [member for member in recorded_members(ruby_release) if b'"job_class"' not in member]
    # What is not UTF-8, or nested as deep as JSON goes, cannot be told by way of JSON.
    told = [member for member in plain if member.decode(errors="ignore").encode() == member]
    members = [member for member in told if b"[" * 90 not in member]
    redis_client.zadd("dead", {member: float(n) for n, member in enumerate(members)})

    # In base64, as the arguments hold line breaks of every kind.
    theirs = ruby('[JSON.generate(Sidekiq::DeadSet.new.map { |job| [job.jid, job.display_args] })].pack("m0")')

    assert [[job.jid, job.display_args] for job in DeadSet()] == json.loads(base64.b64decode(theirs))


def test_numbers_are_the_same(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Counters, sizes, history and queues."""
    redis_client.mset({"stat:processed": 1234, "stat:failed": 56})
    ruby('3.times { FixtureJob.perform_async("ok") }; FixtureJob.set(queue: "low").perform_async("ok")')
    ruby('Sidekiq.redis { |conn| conn.set("stat:processed:#{Time.now.utc.strftime("%Y-%m-%d")}", 77) }')

    theirs = ruby(
        """
        stats = Sidekiq::Stats.new
        [stats.processed, stats.failed, stats.enqueued, stats.retry_size, stats.queues.to_a,
         Sidekiq::Stats::History.new(3).processed.to_a, Sidekiq::Queue.all.map(&:name)]
        """
    )

    stats = Stats()
    assert theirs == [
        stats.processed,
        stats.failed,
        stats.enqueued,
        stats.retry_size,
        [list(pair) for pair in stats.queues.items()],
        [list(pair) for pair in History(3).processed.items()],
        [queue.name for queue in Queue.all()],
    ]


def test_what_we_kill_and_reschedule_ruby_reads_and_retries(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """A retry that Ruby wrote, rescheduled and killed by us, and retried from the dead set by Ruby."""
    jid = ruby('FixtureJob.perform_async("ok")')
    raw = redis_client.rpop("queue:default")
    assert isinstance(raw, bytes)
    redis_client.zadd("retry", {raw: 1.0})
    [entry] = RetrySet()
    entry.reschedule(4_000_000_000)
    assert ruby("Sidekiq::RetrySet.new.map { |job| [job.jid, job.score] }") == [[jid, 4_000_000_000.0]]

    [rescheduled] = RetrySet()
    rescheduled.kill()
    ruby("Sidekiq::DeadSet.new.find_job(jid).retry", jid=jid)

    [job] = Queue()
    assert (job.jid, DeadSet().size, RetrySet().size) == (jid, 0, 0)
