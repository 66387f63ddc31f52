"""The real Celery with our transport as its broker, beside real Ruby: each enqueues for the other."""

import json
from pathlib import Path

import pytest
import redis

from interop_tests.conftest import RunRuby, StartRuby
from interop_tests.support.ledger import LEDGER, entries, lines
from interop_tests.support.ruby import RubyRelease
from tests.compat.transport.celery_side import celery_worker, run_client
from tests.support.waiting import eventually


@pytest.fixture
def options(ruby_release: RubyRelease) -> str:
    """The transport's options, with the release at the other end pinned."""
    return json.dumps({"sidekiq_version": ruby_release.sidekiq_version})


def test_ruby_enqueues_and_celery_runs(
    redis_url: str, redis_client: redis.Redis, ruby: RunRuby, options: str, tmp_path: Path
) -> None:
    """At once and at a time; Celery stores the results where its clients look for them."""
    with celery_worker(redis_url, tmp_path / "log", "-P", "solo", OPTIONS=options):
        first, second = ruby(
            'job = {"class" => "HardWorker", "queue" => "celery", "args" => ["é", {"n" => 1.5}]}; '
            '[Sidekiq::Client.push(job), Sidekiq::Client.push(job.merge("at" => Time.now.to_f + 1))]'
        )

        for jid in (first, second):
            meta = eventually(lambda jid=jid: redis_client.get(f"celery-task-meta-{jid}"))
            assert json.loads(meta)["result"] == ["é", {"n": 1.5}]


def test_celery_sends_and_ruby_runs(
    redis_url: str, redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, options: str
) -> None:
    """At once and at a time; Ruby's pages show what waits."""
    start_ruby()

    sent = json.loads(run_client(redis_url, "ruby_client.py", OPTIONS=options, LEDGER=LEDGER))

    eventually(lambda: len(entries(redis_client)) == 2)
    assert set(entries(redis_client)) == {"é", "later"}
    assert {line["jid"] for line in lines(redis_client)} == {sent["now"], sent["later"]}
    assert {line["by"] for line in lines(redis_client)} == {"ruby"}
    shown = ruby("Sidekiq::ScheduledSet.new.map { |job| [job.jid, job.klass, job.queue, job.args] }")
    assert shown == [[sent["in_an_hour"], "FixtureJob", "default", ["ledger", LEDGER, "never"]]]
