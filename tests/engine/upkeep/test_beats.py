"""What one heartbeat writes, release by release, and what it brings back."""

import builtins
import time
from typing import Any

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.processes import beats
from sidekiq_py.redis_access.processes.beats import Beat
from sidekiq_py.wire.dialect import Dialect
from tests.support.cutting_proxy import CuttingProxy, Where
from tests.support.redis_server import RedisServer
from tests.support.time_to_live import was_given

V6 = Dialect.pinned("6.4.1")
V7 = Dialect.pinned("7.3.2")
V8 = Dialect.pinned("8.1.7")

BEAT = Beat(
    identity="host:1:abc",
    info=b'{"hostname":"host"}',
    concurrency=5,
    busy=1,
    is_quiet=False,
    rss_kb=12345,
    now=1_700_000_000.25,
    work={"tid1": b'{"queue":"default"}'},
)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (Dialect.pinned("6.0.4"), ["info", "busy", "beat", "quiet"]),
        (V6, ["info", "busy", "beat", "rtt_us", "quiet", "rss"]),
        (V7, ["info", "busy", "beat", "rtt_us", "quiet", "rss"]),
        (V8, ["info", "concurrency", "busy", "beat", "rtt_us", "quiet", "rss"]),
        (Dialect.unknown(), ["info", "concurrency", "busy", "beat", "rtt_us", "quiet", "rss"]),
    ],
)
def test_a_beat_has_the_fields_of_its_release_in_their_order(
    dialect: Dialect, fields: list[str], pool: Pool, redis_client: redis.Redis
) -> None:
    """Where the reader is unknown, those that any reader looks for."""
    beats.beat(pool, BEAT, dialect=dialect)

    written = redis_client.hgetall("host:1:abc")
    assert [name.decode() for name in written] == fields
    assert written[b"info"] == b'{"hostname":"host"}'
    assert (written[b"busy"], written[b"beat"], written[b"quiet"]) == (b"1", b"1700000000.25", b"false")
    assert written.get(b"rss", b"12345") == b"12345"
    assert written.get(b"concurrency", b"5") == b"5"


def test_a_beat_registers_the_process_for_a_minute(pool: Pool, redis_client: redis.Redis) -> None:
    """The first beat finds it unknown, the next one known."""
    began = time.monotonic()
    first = beats.beat(pool, BEAT, dialect=V7)
    second = beats.beat(pool, BEAT._replace(is_quiet=True, rtt_us=1234), dialect=V7)

    assert (first.was_known, second.was_known) == (False, True)
    assert redis_client.smembers("processes") == {b"host:1:abc"}
    assert was_given(redis_client, "host:1:abc", 60, since=began)
    assert redis_client.hget("host:1:abc", "quiet") == b"true"
    assert redis_client.hget("host:1:abc", "rtt_us") == b"1234"
    assert min(first.rtt_us, second.rtt_us) > 0


@pytest.mark.parametrize(
    ("dialect", "names"),
    [(V6, {"workers"}), (V7, {"work"}), (Dialect.unknown(), {"work", "workers"})],
)
def test_running_jobs_stand_where_the_release_looks_for_them(
    dialect: Dialect, names: set[str], pool: Pool, redis_client: redis.Redis
) -> None:
    """Under both names if either may be read; a job that has ended is gone with the next beat."""
    beats.beat(pool, BEAT._replace(work={"gone": b"x"}), dialect=dialect)
    began = time.monotonic()

    beats.beat(pool, BEAT, dialect=dialect)

    assert {key.decode() for key in redis_client.keys("host:1:abc:*")} == {f"host:1:abc:{name}" for name in names}
    for name in names:
        assert redis_client.hgetall(f"host:1:abc:{name}") == {b"tid1": b'{"queue":"default"}'}
        assert was_given(redis_client, f"host:1:abc:{name}", 60, since=began)


def test_an_idle_process_has_no_work_hash(pool: Pool, redis_client: redis.Redis) -> None:
    """The one of the last beat is removed."""
    beats.beat(pool, BEAT, dialect=V7)

    beats.beat(pool, BEAT._replace(work={}, busy=0), dialect=V7)

    assert not redis_client.exists("host:1:abc:work")


def test_each_beat_brings_one_signal(pool: Pool, redis_client: redis.Redis) -> None:
    """The oldest first; none is `None`."""
    redis_client.lpush("host:1:abc-signals", "TSTP")
    redis_client.lpush("host:1:abc-signals", "TERM")

    signals = [beats.beat(pool, BEAT, dialect=V7).signal for _ in range(3)]

    assert signals == ["TSTP", "TERM", None]


def test_a_signal_that_is_no_utf8_comes_once(pool: Pool, redis_client: redis.Redis) -> None:
    """It is removed as the bytes that came."""
    redis_client.lpush("host:1:abc-signals", b"\xff")

    signals = [beats.beat(pool, BEAT, dialect=V7).signal for _ in range(2)]

    assert signals == ["\ufffd", None]


@pytest.mark.parametrize("where", ["before reply", "in reply"])
@pytest.mark.parametrize(("command", "signal"), [(b"SADD", "TSTP"), (b"LREM", "TERM")])
def test_a_signal_comes_once_if_a_reply_is_lost(
    where: Where, command: bytes, signal: str, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """The reply to the beat or to the removal; Redis has executed them. A second TERM would end the jobs at once."""
    with CuttingProxy(redis_server.port) as proxy:
        pool = Pool(RedisSettings(proxy.url))
        redis_client.lpush("host:1:abc-signals", signal)
        proxy.cut(command, where)

        signals = [beats.beat(pool, BEAT._replace(rtt_us=100), dialect=V7).signal for _ in range(2)]

        pool.close()
    assert (signals, proxy.cuts[where]) == ([signal, None], 1)


def test_a_beat_takes_two_round_trips_at_most(pool: Pool, redis_client: redis.Redis) -> None:
    """The first is the one that is timed."""
    beats.beat(pool, BEAT, dialect=V7)
    redis_client.config_resetstat()

    beats.beat(pool, BEAT, dialect=V7)

    assert redis_client.info("commandstats")["cmdstat_exec"]["calls"] == 2
    assert redis_client.info("stats")["total_reads_processed"] <= 4  # this test's own INFO are the other two


def test_a_refused_beat_is_an_error(pool: Pool, redis_client: redis.Redis) -> None:
    """Also where it shows only inside the transaction."""
    redis_client.set("host:1:abc", "a string")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        beats.beat(pool, BEAT, dialect=V7)


def test_leaving_takes_the_process_out_of_the_list(pool: Pool, redis_client: redis.Redis) -> None:
    """With its running jobs; its hash expires by itself, as Ruby's does."""
    beats.beat(pool, BEAT, dialect=V7)

    beats.clear(pool, "host:1:abc", dialect=V7)

    assert redis_client.keys() == [b"host:1:abc"]


def test_memory_is_told_in_kilobytes() -> None:
    """As the kernel tells it, give or take what was allocated in between."""
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS:")]

    assert beats.rss_kb() == pytest.approx(int(line.split()[1]), rel=0.1)


def test_memory_is_told_in_kilobytes_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FreeBSD, or in a sandbox of Linux: the highest value so far, in the unit of that system."""
    now_kb, open_file = beats.rss_kb(), builtins.open

    def open_but_no_proc(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", open_but_no_proc)

    assert beats.rss_kb() >= now_kb * 0.9
