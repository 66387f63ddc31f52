"""Ruby and Python workers, each as the Redis user from docs/redis.md: Redis must not reject anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import PYTHON_JOBS
from interop_tests.support import python_jobs
from interop_tests.support.ledger import GATE, LEDGER, lines, make_due, open_gate
from interop_tests.support.ruby import RubyRelease, RubySidekiq, run_ruby
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess


@pytest.fixture
def users(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Users]:
    """The documented users; in the end none of them may have been refused anything."""
    made = Users(redis_server, redis_client)
    made.create()
    yield made
    refused = made.refusals()
    for name in documented_users():
        redis_client.execute_command("ACL", "DELUSER", name)
    assert refused == []


# Older ones are shipped with a redis gem that knows no users.
@pytest.mark.releases(since="6.4")
def test_both_languages_do_their_work_as_documented_users(
    users: Users, ruby_release: RubyRelease, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """
    Pushes, schedules, failures, retries, deaths, a kill, stops; each language also runs what the other left behind.
    """
    sidekiq.configure(redis_url=users.url("enqueue"), sidekiq_version=None)
    environment = {"FIXTURE_SIDEKIQ_VERSION": ruby_release.sidekiq_version, "REDIS_URL": users.url("worker")}

    def python_worker(name: str) -> WorkerProcess:
        return WorkerProcess(PYTHON_JOBS, redis_url=users.server.url, environment=environment, log_path=tmp_path / name)

    # What the jobs of this test write themselves.
    for name in ("worker", "ruby"):
        redis_client.execute_command("ACL", "SETUSER", name, "~fixture:*", "+rpush", "+incr", "+exists", "+get")
    ruby_worker = RubySidekiq(
        ruby_release,
        redis_url=users.server.url,
        environment={"REDIS_URL": users.url("ruby")},
        log_path=tmp_path / "ruby.log",
    )
    with ruby_worker, python_worker("python-1.log") as ours:
        for number in range(20):
            python_jobs.fixture_job.perform_async("ledger_and_sleep", LEDGER, number, 0.05)
        run_ruby(
            ruby_release,
            """
            20.times { |number| FixtureJob.perform_async("ledger_and_sleep", key, 20 + number, 0.05) }
            FixtureJob.perform_in(0.1, "ledger", key, 40)
            6.times { |number| FixtureJob.perform_async("raise_until", "fixture:#{number}", 1, key, 41 + number) }
            2.times { RetryZeroJob.perform_async("raise", "boom") }
            """,
            users.url("ruby"),
            key=LEDGER,
        )
        eventually(lambda: redis_client.zcard("retry") == 6)
        make_due(redis_client, "retry")
        eventually(lambda: {line["entry"] for line in lines(redis_client)} == set(range(47)))
        eventually(lambda: redis_client.zcard("dead") == 2)
        assert {line["by"] for line in lines(redis_client)} == {"ruby", "python"}
        ruby_worker.stop()
        for number in range(50, 54):
            python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, number, GATE)
        eventually(lambda: redis_client.llen(LEDGER) == 51)
        ours.kill()
        with python_worker("python-2.log"):
            open_gate(redis_client)
            eventually(lambda: redis_client.llen(LEDGER) == 55)
            seen = run_ruby(
                ruby_release,
                """
                stats = Sidekiq::Stats.new
                [stats.processed > 0, stats.dead_size, Sidekiq::ProcessSet.new(false).size > 0]
                """,
                users.url("ruby"),
            )

    assert seen == [True, 2, True]
