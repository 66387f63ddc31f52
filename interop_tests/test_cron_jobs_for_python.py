"""sidekiq-cron keeps the schedule in Ruby, and Python runs the jobs that are due."""

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support.ledger import LEDGER, lines, raw_jobs
from tests.support.waiting import eventually

# Debian packages sidekiq-cron for Sidekiq 6 alone.
pytestmark = pytest.mark.releases(before="7")

CRON = {"also": ("cron.rb",)}


def test_python_runs_what_sidekiq_cron_enqueues(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """A class that Ruby has, and one that only Python has; each runs once for its minute, however often Ruby checks."""
    ruby(
        """
        periodic(name: "both", cron: "* * * * *", class: "FixtureJob", args: ["ledger", key, "class in both"])
        periodic(name: "ours", cron: "* * * * *", class: "PythonOnlyJob", args: ["ledger", key, "class in Python"])
        2.times { tick("2030-01-01 12:34:05 UTC") }
        """,
        key=LEDGER,
        **CRON,
    )
    start_python("-q", "default")

    eventually(lambda: redis_client.llen(LEDGER) >= 2)
    assert sorted(line["entry"] for line in lines(redis_client)) == ["class in Python", "class in both"]
    eventually(lambda: redis_client.get("stat:processed") == b"2")


def test_each_minute_s_job_runs_again(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """Over three minutes, the same worker runs three jobs."""
    start_python("-q", "default")
    ruby(
        """
        periodic(name: "often", cron: "* * * * *", class: "FixtureJob", args: ["ledger", key, "tick"])
        %w[12:34 12:35 12:36].each { |minute| tick("2030-01-01 #{minute}:05 UTC") }
        """,
        key=LEDGER,
        **CRON,
    )

    eventually(lambda: redis_client.get("stat:processed") == b"3")
    assert [line["by"] for line in lines(redis_client)] == ["python"] * 3


def test_the_date_that_cron_adds_arrives_as_the_last_argument(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`date_as_argument` appends the time as float seconds, with all its digits."""
    pushed = ruby(
        """
        periodic(name: "dated", cron: "* * * * *", class: "FixtureJob", date_as_argument: true, args: ["echo", key])
        tick("2030-01-01 12:34:05 UTC")
        Sidekiq::Queue.new.first.args.last
        """,
        key=LEDGER,
        **CRON,
    )
    [raw] = raw_jobs(redis_client, "default")
    start_python("-q", "default")

    [echoed] = eventually(lambda: redis_client.lrange(LEDGER, 0, -1))
    assert echoed == b"[%s]" % repr(pushed).encode()
    assert raw.count(repr(pushed).encode()) == 1


def test_our_processes_leave_the_timetable_alone(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """After a Python worker has started, worked and stopped, `cron_jobs` and `cron_job:*` are as Ruby wrote them."""
    ruby('periodic(name: "kept", cron: "5 4 * * *", class: "FixtureJob", args: ["ok"])', **CRON)
    before = _timetable(redis_client)
    worker = start_python("-q", "default")
    ruby('FixtureJob.perform_async("ok")')
    eventually(lambda: redis_client.get("stat:processed") == b"1")

    worker.stop()

    assert len(before) >= 2
    assert _timetable(redis_client) == before


def _timetable(client: redis.Redis) -> dict[bytes, object]:
    """What stands in each key. No DUMP: a read may let Redis go on with a hash's growth, which changes its order."""
    hashes = [key for key in client.keys("cron_job:*") if client.type(key) == b"hash"]
    lists = [key for key in client.keys("cron_job:*") if client.type(key) == b"zset"]
    return {
        **{key: client.hgetall(key) for key in hashes},
        **{key: client.zrange(key, 0, -1, withscores=True) for key in lists},
        b"cron_jobs": client.smembers("cron_jobs"),
    }
