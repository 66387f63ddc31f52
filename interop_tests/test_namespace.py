"""Both languages under one namespace: Ruby with the redis-namespace gem, up to Sidekiq 6.5; Python natively."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RUBY_SWITCH, RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import make_due, only_job
from interop_tests.support.ruby import RELEASES, RubyRelease, release, why_missing
from sidekiq_py import program
from sidekiq_py.api import ProcessSet, Queue, RetrySet
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually

NAMESPACE = "myapp"
# What jobs write beside Sidekiq's keys: Ruby's stand under the namespace, as they go through Sidekiq's connection.
RUBY_LEDGER, PYTHON_LEDGER = b"myapp:fixture:ran", b"fixture:ran"
PATIENCE_SECONDS = 60.0


@pytest.fixture(
    scope="module",
    params=[one for one in RELEASES if one.numbers < (7,)] or [release("6.4")],
    ids=lambda one: one.sidekiq_version,
)
def ruby_release(request: pytest.FixtureRequest) -> RubyRelease:
    """The releases that know namespaces, with a namespace set."""
    found: RubyRelease = request.param
    reason = why_missing(found)
    if reason is not None:
        skip_or_fail(reason, switch=RUBY_SWITCH)
    options = {"RUBYOPT": f"-r{found.fixtures / 'namespace.rb'}", "SIDEKIQ_NAMESPACE": NAMESPACE}
    return replace(found, environment={**found.environment, **options})


@pytest.fixture(autouse=True)
def _python_client(ruby_release: RubyRelease, redis_url: str, redis_client: redis.Redis) -> Iterator[None]:
    """This test process is under the namespace; in the end there are no keys beside it but Python's own ledger."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, namespace=NAMESPACE, sidekiq_version=ruby_release.sidekiq_version)
    yield
    program.reset()
    beside = [key for key in redis_client.keys("*") if not key.startswith(b"myapp:")]
    assert set(beside) <= {PYTHON_LEDGER, b"runs"}


def who_ran(client: redis.Redis, ledger: bytes) -> list[tuple[str, Any]]:
    """Language and entry of each run, by entry."""
    lines = map(json.loads, client.lrange(ledger, 0, -1))
    return sorted(((line["by"], line["entry"]) for line in lines), key=str)


def test_what_ruby_pushes_python_runs(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """Immediately, and when it is due."""
    ruby('FixtureJob.perform_async("ledger", "fixture:ran", 1); FixtureJob.perform_in(0.2, "ledger", "fixture:ran", 2)')

    start_python(namespace=NAMESPACE)

    eventually(lambda: who_ran(redis_client, PYTHON_LEDGER) == [("python", 1), ("python", 2)], PATIENCE_SECONDS)
    assert ruby("[Sidekiq::Queue.new.size, Sidekiq::ScheduledSet.new.size]") == [0, 0]


def test_what_python_pushes_ruby_runs(redis_client: redis.Redis, start_ruby: StartRuby) -> None:
    """Immediately, and when it is due."""
    python_jobs.fixture_job.perform_async("ledger", "fixture:ran", 1)
    python_jobs.fixture_job.perform_in(0.2, "ledger", "fixture:ran", 2)

    start_ruby(namespace=NAMESPACE)

    eventually(lambda: who_ran(redis_client, RUBY_LEDGER) == [("ruby", 1), ("ruby", 2)], PATIENCE_SECONDS)


def test_what_failed_in_ruby_is_retried_by_python(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """The retry that Ruby wrote comes due in Python."""
    worker = start_ruby(namespace=NAMESPACE)
    jid = ruby('FixtureJob.perform_async("raise_until", "runs", 1, "fixture:ran", "done")')
    eventually(lambda: only_job(redis_client, "myapp:retry"), PATIENCE_SECONDS)
    worker.kill()
    assert [entry.jid for entry in RetrySet()] == [jid]
    # Each language counts the runs under a key of its own; the first has been.
    redis_client.set("runs", 1)
    start_python(namespace=NAMESPACE)

    make_due(redis_client, "myapp:retry")

    eventually(lambda: who_ran(redis_client, PYTHON_LEDGER) == [("python", "done")], PATIENCE_SECONDS)


def test_what_failed_in_python_is_retried_by_ruby(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """The retry that Python wrote comes due in Ruby."""
    worker = start_python(namespace=NAMESPACE)
    jid = python_jobs.fixture_job.perform_async("raise_until", "runs", 1, "fixture:ran", "done")
    eventually(lambda: only_job(redis_client, "myapp:retry"), PATIENCE_SECONDS)
    worker.stop()
    assert ruby("Sidekiq::RetrySet.new.map(&:jid)") == [jid]
    redis_client.set("myapp:runs", 1)
    start_ruby(namespace=NAMESPACE)

    make_due(redis_client, "myapp:retry")

    eventually(lambda: who_ran(redis_client, RUBY_LEDGER) == [("ruby", "done")], PATIENCE_SECONDS)


def test_each_sees_the_other_s_processes_and_queues(
    ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Ruby can also tell ours to stop."""
    ours = start_python(namespace=NAMESPACE)
    theirs = start_ruby(namespace=NAMESPACE, queues=("elsewhere",))
    python_jobs.fixture_job.set(queue="low").perform_async("ok")
    identity = ours.identity

    assert {process.identity for process in ProcessSet()} == {identity, theirs.identity}
    assert sorted(ruby('Sidekiq::ProcessSet.new.map { |process| process["identity"] }')) == sorted(
        [identity, theirs.identity]
    )
    assert ruby("Sidekiq::Queue.all.map { |queue| [queue.name, queue.size] }") == [["low", 1]]
    assert Queue("low").size == 1
    ruby('Sidekiq::ProcessSet.new.find { |process| process["identity"] == identity }.stop!', identity=identity)
    assert ours.wait() == 0
