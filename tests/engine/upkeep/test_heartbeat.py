"""The thread that beats: what it writes, fires and hands on, and how it lives through a Redis that goes away."""

import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.work_state import RunningJob
from sidekiq_py.engine.upkeep.heartbeat import Heartbeat
from sidekiq_py.hooks import Hooks
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.process_info import CapsuleFacts, ProcessFacts
from tests.support.cutting_proxy import CuttingProxy
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
NOW = 1_700_000_000.25
RAW = b'{"class":"Hard","args":["caf\xc3\xa9"],"jid":"a1"}'
PROCESS = ProcessFacts(
    hostname="host",
    started_at=NOW,
    pid=1,
    tag="shop",
    capsules=(CapsuleFacts("default", 5, "strict", {"default": 0, "low": 0}),),
    labels=(),
    identity="host:1:abc",
    version="6.4.1",
)


class Beating:
    """A heartbeat and all that it tells."""

    def __init__(self, url: str, **options: Any) -> None:
        self.calls: list[Any] = []
        self.is_quiet = False
        self.running: list[RunningJob] = []
        self.hooks = Hooks()
        self.hooks.on("heartbeat")(lambda: self.calls.append("heartbeat"))
        self.hooks.on("beat")(lambda: self.calls.append("beat"))
        self.hooks.on_error(lambda error, context: self.calls.append(context["context"]))
        self.pool = Pool(RedisSettings(url, socket_timeout_seconds=2))
        options = {
            "on_beat": lambda was_known: self.calls.append("on_beat" if was_known else "first on_beat"),
            "dialect": lambda: Dialect.pinned("6.4.1"),
            **options,
        }
        self.heartbeat = Heartbeat(
            PROCESS,
            pool=self.pool,
            running=lambda: self.running,
            is_quiet=lambda: self.is_quiet,
            hooks=self.hooks,
            on_signal=self.calls.append,
            now=lambda: NOW,
            **options,
        )

    def close(self) -> None:
        """End it."""
        self.heartbeat.stop()
        self.pool.close()


@pytest.fixture
def beating(redis_url: str) -> Iterator[Beating]:
    """A heartbeat on the emptied server, not started."""
    made = Beating(redis_url)
    yield made
    made.close()


def running_job() -> RunningJob:
    """A job that has been running for a while."""
    return RunningJob("tid1", UnitOfWork(RAW, "low", None, b"", False, 0.0), NOW - 9.5)


def test_a_beat_tells_who_the_process_is_and_what_it_runs(beating: Beating, redis_client: redis.Redis) -> None:
    """Busy and the running jobs come from one look."""
    beating.running = [running_job()]

    beating.heartbeat.beat()

    written: Any = redis_client.hgetall("host:1:abc")
    assert json.loads(written[b"info"])["tag"] == "shop"
    assert (written[b"busy"], written[b"quiet"], written[b"beat"]) == (b"1", b"false", b"1700000000.25")
    assert int(written[b"rss"]) > 1000
    work: Any = redis_client.hgetall("host:1:abc:workers")
    assert {tid: json.loads(entry) for tid, entry in work.items()} == {
        b"tid1": {"queue": "low", "payload": RAW.decode(), "run_at": 1_699_999_990}
    }


def test_the_release_that_is_shown_is_the_one_written_for_now(redis_url: str, redis_client: redis.Redis) -> None:
    """Ruby's may be found out after the start, and may change."""
    written_for = ["7.3.2"]
    beating = Beating(redis_url, dialect=lambda: Dialect.pinned(written_for[-1]))

    def shown() -> str:
        beating.heartbeat.beat()
        return str(json.loads(redis_client.hget("host:1:abc", "info"))["version"])

    first = shown()
    written_for.append("8.1.7")
    second = shown()

    beating.pool.close()
    assert (first, second) == ("7.3.2", "8.1.7")


def test_the_first_beat_is_told_apart_from_later_ones(beating: Beating, redis_client: redis.Redis) -> None:
    """`heartbeat` comes again when Redis had forgotten the process."""
    beating.heartbeat.beat()
    beating.heartbeat.beat()
    redis_client.delete("host:1:abc")
    beating.heartbeat.beat()

    first, later = ["heartbeat", "beat", "first on_beat"], ["beat", "on_beat"]
    assert beating.calls == [*first, *later, *first]


def test_a_signal_from_the_web_ui_is_handed_on_after_the_hooks(beating: Beating, redis_client: redis.Redis) -> None:
    """One a beat."""
    redis_client.lpush("host:1:abc-signals", "TSTP")

    beating.heartbeat.beat()

    assert beating.calls == ["heartbeat", "beat", "first on_beat", "TSTP"]


def test_what_fails_after_a_beat_is_reported_once(redis_url: str) -> None:
    """And keeps no signal from being handed on."""

    def fail(was_known: bool) -> None:
        raise RuntimeError("no metrics today")

    beating = Beating(redis_url, on_beat=fail)

    beating.heartbeat.beat()
    beating.heartbeat.beat()

    assert beating.calls == ["heartbeat", "beat", "Error after a heartbeat", "beat"]
    beating.close()


def test_the_thread_beats_at_once_in_its_period_and_when_asked(redis_url: str, redis_client: redis.Redis) -> None:
    """Quiet is shown without waiting for the period to end."""
    beating = Beating(redis_url, period_seconds=60)
    beating.heartbeat.start()
    eventually(lambda: redis_client.hget("host:1:abc", "quiet") == b"false")

    beating.is_quiet = True
    beating.heartbeat.beat_soon()

    eventually(lambda: redis_client.hget("host:1:abc", "quiet") == b"true")
    beating.close()


def test_a_beat_after_the_first_needs_one_round_trip(beating: Beating, redis_client: redis.Redis) -> None:
    """It publishes how long the beat before took; the first one times a PING."""
    beating.heartbeat.beat()
    pings, first = redis_client.info("commandstats")["cmdstat_ping"], redis_client.hget("host:1:abc", "rtt_us")
    redis_client.hset("host:1:abc", "rtt_us", 0)

    for _ in range(3):
        beating.heartbeat.beat()

    assert redis_client.info("commandstats")["cmdstat_ping"] == pings
    assert 0 < int(redis_client.hget("host:1:abc", "rtt_us") or 0) < 2_000_000
    assert int(first or 0) > 0


def test_a_stopped_process_leaves_the_list(beating: Beating, redis_client: redis.Redis) -> None:
    """With its running jobs, and it does not beat again; stopping twice is fine."""
    beating.running = [running_job()]
    beating.heartbeat.start()
    eventually(lambda: redis_client.exists("host:1:abc:workers"))

    beating.heartbeat.stop()
    beating.heartbeat.stop()

    assert redis_client.keys() == [b"host:1:abc"]


def test_an_outage_is_reported_once_and_its_end_logged(
    new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """The process is registered again as soon as Redis is back."""
    caplog.set_level(logging.INFO, "sidekiq")
    server = new_redis_server()
    beating = Beating(server.url, period_seconds=0.05)
    beating.heartbeat.start()
    eventually(lambda: "first on_beat" in beating.calls)

    server.stop()
    eventually(lambda: beating.calls[-1] == "heartbeat" and beating.calls.count("heartbeat") == 2)
    server.start()
    eventually(lambda: "Redis is online" in caplog.text)

    [online] = [record.message for record in caplog.records if "Redis is online" in record.message]
    assert online.endswith("sec downtime")
    eventually(lambda: beating.calls.count("heartbeat") == 3)
    beating.close()


def test_a_slow_connection_is_warned_of(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """After five bad readings in a row, and not again before the next five."""
    with CuttingProxy(redis_server.port) as proxy:
        proxy.delay_seconds = 0.1
        beating = Beating(proxy.url)
        for _ in range(6):
            beating.heartbeat.beat()
        beating.close()

    assert caplog.text.count("performing extremely poorly") == 1


def test_real_ruby_lists_the_process_and_its_work(beating: Beating, redis_url: str) -> None:
    """Sidekiq's own API finds it, reads its fields, and its stop button arrives."""
    beating.running = [running_job()]
    beating.heartbeat.beat()

    seen = ask_ruby(
        """
        process = Sidekiq::ProcessSet.new.to_a.fetch(0)
        process.stop!
        _, tid, work = Sidekiq::Workers.new.to_a.fetch(0)
        {tag: process.tag, queues: process.queues, busy: process["busy"], concurrency: process["concurrency"],
         rss: process["rss"], quiet: process.stopping?, tid: tid, queue: work["queue"], payload: work["payload"],
         run_at: work["run_at"]}
        """,
        redis_url,
    )
    beating.heartbeat.beat()

    assert seen.pop("rss") > 1000
    assert seen == {
        "tag": "shop",
        "queues": ["default", "low"],
        "busy": 1,
        "concurrency": 5,
        "quiet": False,
        "tid": "tid1",
        "queue": "low",
        "payload": json.loads(RAW),
        "run_at": 1_699_999_990,
    }
    assert beating.calls[-1] == "TERM"


def ask_ruby(code: str, url: str) -> Any:
    """The value of Ruby code, with Sidekiq's data API loaded."""
    program = f"""
        require "sidekiq"
        require "sidekiq/api"
        Sidekiq.redis = {{url: ARGV[0]}}
        puts JSON.generate(begin; {code}; end)
    """
    try:
        done = subprocess.run(
            ["ruby", "-W0", "-e", program, url], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError as error:
        skip_or_fail(f"no Ruby ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    if "cannot load such file" in done.stderr:
        skip_or_fail("no Ruby with Sidekiq 6.4.1; on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
