"""Everything at one instant, in one round trip, and how much is done a second."""

import json
from dataclasses import replace

import pytest

from sidekiq_py.api import OverviewReader, OverviewScope
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.reads.in_flight_counts import InFlightCount


@pytest.fixture
def fleet(redis_client, payload):
    """A Ruby process that runs a job, a Python one that has one in flight, and three queues, of which one is paused."""
    for identity, labels in (("rails:1:aa", []), ("app:2:bb", ["sidekiq_py"])):
        info = {"hostname": identity.split(":")[0], "queues": ["default"], "labels": labels, "concurrency": 5}
        redis_client.sadd("processes", identity)
        redis_client.hset(identity, mapping={"info": json.dumps(info), "busy": 1, "beat": 1, "quiet": "false"})
    work = {"queue": "default", "payload": payload("r").decode(), "run_at": 1_700_000_000}
    redis_client.hset("rails:1:aa:work", "t1", json.dumps(work))
    redis_client.hset("sidekiq_py:owners", "app:2:bb:0", '{"queues":["low"]}')
    redis_client.hset("sidekiq_py:inflight:app:2:bb:0", "1.0:default", payload("p"))
    redis_client.lpush("sidekiq_py:inbox:app:2:bb:0:low", payload("q"))
    redis_client.sadd("queues", "default", "low")
    redis_client.sadd("paused", "low")
    redis_client.lpush("queue:default", payload("w", enqueued_at=1_700_000_000))
    redis_client.zadd("retry", {payload("x"): 1})
    redis_client.mset({"stat:processed": 100, "stat:failed": 10})
    return redis_client


def test_an_overview_has_queues_processes_and_running_jobs_of_both_languages(pool, fleet):
    """With what is in flight, waits and failed."""
    overview = OverviewReader().read(now=1_700_000_060)

    assert [(q.name, q.size, q.latency, q.paused, q.in_flight) for q in overview.queues] == [
        ("default", 1, 60.0, False, 1),
        ("low", 0, 0.0, True, 1),
    ]
    assert [(p.identity, p.is_python) for p in overview.processes] == [("app:2:bb", True), ("rails:1:aa", False)]
    assert overview.in_flight_of("app:2:bb") == 2
    assert [work.job.jid for work in overview.works] == ["r"]
    assert (overview.processed, overview.failed, overview.retries, overview.dead) == (100, 10, 1, 0)
    assert (overview.enqueued, overview.concurrency, overview.rates) == (1, 10, None)


def test_asking_for_every_process_looks_at_each_entry_in_flight_once(pool, fleet):
    """A view asks for each of 500 processes, and each has an entry for each of its queues."""
    looks = []

    class Watched(InFlightCount):
        @property
        def identity(self):
            looks.append(self.owner)
            return super().identity

    owners = [f"app:{number}:cc:0" for number in range(20)]
    entries = tuple(Watched(owner, "low", 3) for owner in owners)
    overview = replace(OverviewReader().read(), in_flight=entries)

    assert [overview.in_flight_of(owner.removesuffix(":0")) for owner in owners] == [3] * 20
    assert overview.in_flight_of("app:99:cc") == 0
    assert looks == owners


def test_rates_are_counted_over_a_window(pool, fleet):
    """Ruby's processes tell what they have done every ten seconds only."""
    reader = OverviewReader(window_seconds=15)
    rates = []
    for second, processed in ((0, 100), (10, 200), (20, 200), (30, 500)):
        fleet.mset({"stat:processed": processed, "stat:failed": processed // 10})
        rates.append(reader.read(now=1000 + second).rates)

    assert rates[0] is None
    assert [(rate.processed, rate.failed, rate.over_seconds) for rate in rates[1:]] == [
        (10, 1, 10),
        (5, 0.5, 20),
        (15, 1.5, 20),
    ]


def test_counters_that_were_reset_start_the_rates_anew(pool, fleet):
    """No rate is below nothing."""
    reader = OverviewReader()
    reader.read(now=1000)
    fleet.mset({"stat:processed": 0, "stat:failed": 0})

    assert reader.read(now=1010).rates is None


def test_a_read_after_the_first_is_one_round_trip(pool, fleet, monkeypatch):
    """And finds what came since, at the latest a read later."""
    reader = OverviewReader(pool=pool)
    reader.read()
    trips = []
    run = pool.run
    monkeypatch.setattr(pool, "run", lambda *arguments, **options: trips.append(1) or run(*arguments, **options))
    fleet.sadd("queues", "new")
    fleet.lpush("queue:new", "{}")

    reader.read()
    overview = reader.read()

    assert len(trips) == 2
    assert ("new", 1) in [(queue.name, queue.size) for queue in overview.queues]


def test_keys_of_a_wrong_type_hide_nothing_else(pool, fleet):
    """A queue that is none has no size."""
    fleet.sadd("queues", "odd")
    fleet.set("queue:odd", "x")

    overview = OverviewReader().read()

    assert [(queue.name, queue.size) for queue in overview.queues] == [("default", 1), ("low", 0), ("odd", 0)]
    assert [queue.name for queue in overview.queues if queue.error] == ["odd"]


@pytest.mark.parametrize("key", ["queues", "processes", "paused", "retry", "dead", "schedule", "stat:processed"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_this_user_may_not_read_is_no_zero(pool, fleet, redis_url, key, is_first):
    """The read fails and says why, as it does for `Stats`: "0 retries" would be a lie."""
    others = {"queues", "processes", "paused", "retry", "dead", "schedule", "stat:processed", "stat:failed"} - {key}
    allowed = [*(f"~{other}" for other in others), "~queue:*", "~*:*:*", "~sidekiq_py:*"]
    fleet.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", "+@all", "~*")
    try:
        reader = OverviewReader(pool=redis_url.replace("redis://", "redis://few:secret@"))
        if not is_first:
            reader.read()
        fleet.execute_command("ACL", "SETUSER", "few", "resetkeys", *allowed)

        with pytest.raises(RedisReplyError, match="NOPERM"):
            reader.read()
    finally:
        fleet.execute_command("ACL", "DELUSER", "few")


@pytest.mark.parametrize("command", ["hmget", "hkeys"])
def test_processes_that_this_user_may_not_read_are_not_left_out(pool, fleet, redis_url, command):
    """ "No worker is running" would be a lie, and so would "no job is in flight"."""
    fleet.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", "+@all", "~*", f"-{command}")
    try:
        with pytest.raises(RedisReplyError, match="NOPERM"):
            OverviewReader(pool=redis_url.replace("redis://", "redis://few:secret@")).read()
    finally:
        fleet.execute_command("ACL", "DELUSER", "few")


def test_the_server_is_read_if_the_scope_says_so(pool, fleet):
    """From INFO, in the same round trip."""
    reader, info = OverviewReader(), fleet.info()

    server = reader.read(scope=OverviewScope(server=True)).server

    assert server is not None
    assert server.connections is not None
    assert server.connections >= 1
    assert (server.used_bytes or 0) <= (server.peak_bytes or 0)
    assert info["uptime_in_seconds"] <= (server.uptime_seconds or 0)
    assert reader.read().server is None


def test_a_reader_asks_for_info_once_if_it_is_refused(pool, fleet, redis_url):
    """A live view would put a refusal into the ACL log each second. A view that is opened anew asks again."""
    scope = OverviewScope(server=True)
    fleet.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", "+@all", "~*", "-info")
    fleet.config_resetstat()
    try:
        reader = OverviewReader(pool=redis_url.replace("redis://", "redis://few:secret@"))
        assert [reader.read(scope=scope).server for _ in range(3)] == [None] * 3
        refused = [fleet.info("commandstats")["cmdstat_info"]["rejected_calls"]]
        reader.read_anew(scope=scope)
        refused.append(fleet.info("commandstats")["cmdstat_info"]["rejected_calls"])
        fleet.execute_command("ACL", "SETUSER", "few", "+info")
        assert reader.read_anew(scope=scope).server is not None
    finally:
        fleet.execute_command("ACL", "DELUSER", "few")

    assert refused == [1, 2]
