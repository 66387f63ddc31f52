"""The server itself, what it refuses to tell, and how much is looked at where there is much."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable

import pytest
import redis

from sidekiq_py.doctor import Level
from sidekiq_py.doctor.checks import redis_server as checks
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.errors import RedisConnectionError, RedisReplyError
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.doctor.conftest import Look, payload, push, python_process, ruby_process
from tests.support.redis_server import RedisServer
from tests.support.stored_keys import all_keys
from tests.support.waiting import eventually

NewServer = Callable[..., RedisServer]
EVERYTHING = ["+@all", "-@dangerous", "-info", "-config"]


def with_user(server: RedisServer, *rules: str) -> str:
    """A user with these rules on all keys; the URL to be that user."""
    client = server.client()
    client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", *rules)
    client.close()
    return f"redis://limited:secret@127.0.0.1:{server.port}/0"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"redis_version": "6.0.16"}, "This is Redis 6.0.16; Redis 6.2 or later is needed"),
        ({"redis_version": "7.0.15", "redis_mode": "sentinel"}, "This is a Sentinel"),
    ],
)
def test_a_server_that_cannot_serve(lines: dict[str, str], said: str) -> None:
    """Too old, or no server of data."""
    facts = Facts(Pool(RedisSettings()))
    facts.server = server_info.describe(lines)

    [found] = checks.version(facts)

    assert found.level == "problem"
    assert said in found.seen


def test_a_cluster(look: Look, new_redis_server: NewServer) -> None:
    """There is nothing else to say of it."""
    server = new_redis_server(config={"cluster-enabled": "yes"})

    diagnosis = look(server.url)

    assert "Redis Cluster" in diagnosis.the("redis-version").seen
    assert len(diagnosis.report.examined) == 1


def test_a_server_that_throws_keys_away(look: Look, new_redis_server: NewServer) -> None:
    """A problem with a limit to its memory; without one it is still to come."""
    server = new_redis_server(config={"maxmemory-policy": "allkeys-lru"})
    without_limit = look(server.url).the("eviction")
    client = server.client()
    client.config_set("maxmemory", "100mb")
    with_limit = look(server.url).the("eviction")
    client.close()

    assert (without_limit.level, with_limit.level) == ("warning", "problem")
    assert "maxmemory-policy is allkeys-lru" in with_limit.seen


def test_a_server_that_throws_heartbeats_away(look: Look, new_redis_server: NewServer) -> None:
    """Jobs have no time to live, but a batch has, and without it no callback is enqueued."""
    server = new_redis_server(config={"maxmemory-policy": "volatile-lru", "maxmemory": "100mb"})
    before = look(server.url).the("eviction")
    client = server.client()
    client.set("a batch", "x" * 100_000, ex=600)
    client.config_set("maxmemory", client.info("memory")["used_memory"] - 50_000)
    after = look(server.url).the("eviction")
    client.close()

    assert (before.level, after.level) == ("warning", "problem")
    assert "batches and chords (their callbacks are then never enqueued)" in before.seen
    assert "1 key has been evicted" in after.seen


def test_a_key_of_a_foreign_type_keeps_nothing_else_from_being_looked_at(look: Look, redis_client: redis.Redis) -> None:
    """What needs that very key stays unseen, with what Redis said."""
    redis_client.set("processes", "x")
    redis_client.sadd("cron_jobs", "x")

    diagnosis = look()

    assert "WRONGTYPE" in diagnosis.the("processes").seen
    assert diagnosis.levels("products") == ["note"]


def test_a_server_that_has_thrown_keys_away(look: Look, new_redis_server: NewServer) -> None:
    """With their number."""
    server = new_redis_server(config={"maxmemory-policy": "allkeys-random", "maxmemory": "4mb"})
    client = server.client()
    for number in range(200):
        client.set(f"cache:{number}", b"x" * 50_000)
    client.close()

    assert "been evicted since it started" in look(server.url).the("eviction").seen


@pytest.mark.parametrize(("share", "level"), [(0.9, "warning"), (0.99, "problem")])
def test_memory_that_is_nearly_full(look: Look, new_redis_server: NewServer, share: float, level: str) -> None:
    """A full server refuses pushes."""
    server = new_redis_server()
    client = server.client()
    for number in range(300):
        client.set(f"ballast:{number}", b"x" * 200_000)
    used = int(client.info("memory")["used_memory"])
    client.config_set("maxmemory", int(used / share))
    client.close()

    assert look(server.url).levels("memory") == [level]


def test_what_outlives_the_server(look: Look, new_redis_server: NewServer) -> None:
    """Nothing, snapshots, every write."""
    nothing, snapshots, writes = (
        new_redis_server(),
        new_redis_server(config={"save": "3600 1"}),
        new_redis_server(appendonly=True),
    )

    assert "keeps nothing on disk" in look(nothing.url).the("persistence").seen
    assert "loses everything after the last snapshot" in look(snapshots.url).the("persistence").seen
    assert look(writes.url)["persistence"] == []


def test_a_server_that_cannot_write_to_its_disk(look: Look, new_redis_server: NewServer) -> None:
    """Its directory is gone."""
    server = new_redis_server(config={"save": "3600 1"})
    shutil.rmtree(server.directory)
    client = server.client()
    client.set("x", 1)
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")

    found = look(server.url)["persistence"][0]
    client.config_set("save", "")
    client.close()

    assert found.level == "problem"
    assert "rdb_last_bgsave_status" in found.seen


def test_a_replica(look: Look, new_redis_server: NewServer) -> None:
    """It refuses pushes; its primary is in order."""
    primary = new_redis_server(config={"repl-diskless-sync-delay": "0"})
    replica = new_redis_server(config={"replicaof": f"127.0.0.1 {primary.port}"})

    assert "This is a replica" in look(replica.url).the("replication").seen
    eventually(lambda: look(primary.url)["replication"] == [], within_seconds=60, every_seconds=0.2)


def test_a_replica_that_lags(look: Look, new_redis_server: NewServer) -> None:
    """Redis counts it as online for a minute; how long it may lag is what the server itself is set to."""
    primary = new_redis_server(config={"repl-diskless-sync-delay": "0", "min-replicas-max-lag": "1"})
    replica = new_redis_server(config={"replicaof": f"127.0.0.1 {primary.port}"})
    pid = replica.pid
    assert pid is not None
    eventually(lambda: look(primary.url)["replication"] == [], within_seconds=60, every_seconds=0.2)

    os.kill(pid, signal.SIGSTOP)
    try:
        found = eventually(lambda: look(primary.url)["replication"], within_seconds=60, every_seconds=0.2)
    finally:
        os.kill(pid, signal.SIGCONT)

    assert (found[0].level, "1 replica is not in sync" in found[0].seen) == ("warning", True)
    assert "state=online" in found[0].seen


def test_what_an_acl_refuses_was_not_seen(look: Look, new_redis_server: NewServer) -> None:
    """That is told, and nothing of it is a problem; the rest is looked at all the same."""
    server = new_redis_server()
    url = with_user(server, *EVERYTHING)
    client = server.client()
    push(client, queue="mailers")
    client.close()

    diagnosis = look(url)

    for name in ("eviction", "memory", "persistence", "replication"):
        assert diagnosis.levels(name) == ["unseen"], name
    assert "Memory could not be looked at, because Redis answered: NOPERM" in diagnosis.the("memory").seen
    assert diagnosis.levels("unworked-queues") == ["problem"]
    assert diagnosis["redis-version"] == []


def test_without_scan_queues_are_looked_at_by_the_set_of_them(look: Look, new_redis_server: NewServer) -> None:
    """Only what needs the names of all keys stays unseen."""
    server = new_redis_server()
    url = with_user(server, "+@all", "-scan")
    client = server.client()
    python_process(client, classes=())
    push(client, "Sum")
    client.close()

    diagnosis = look(url)

    assert diagnosis.levels("products") == ["unseen"]
    assert diagnosis.levels("orphans") == ["unseen"]
    assert diagnosis.levels("unserved-classes") == ["problem"]


def test_a_queue_that_the_user_may_not_read_is_named(look: Look, new_redis_server: NewServer) -> None:
    """One finding says so; every other check looks at everything else."""
    server = new_redis_server()
    client = server.client()
    rules = "on >secret ~[^q]* ~queues ~queue:good &* +@all"
    client.execute_command("ACL", "SETUSER", "limited", *rules.split())
    push(client, queue="hidden")
    push(client, queue="good")
    ruby_process(client, queues=("hidden", "absent"))
    client.close()

    diagnosis = look(f"redis://limited:secret@127.0.0.1:{server.port}/0")

    unseen = {(check.name, found.subjects) for check, found in diagnosis.report.findings(Level.UNSEEN)}
    assert unseen == {("unlisted-queues", ("hidden", "absent"))}
    found = diagnosis.the("unlisted-queues")
    assert found.seen.startswith(
        "The queues `hidden`, `absent` could not be looked at, and no other check covers them, because Redis answered: "
        "NOPERM"
    )
    assert "Let this user read" in found.advice
    assert diagnosis.the("unworked-queues").subjects == ("good",)


def test_a_user_who_may_do_nothing(look: Look, new_redis_server: NewServer) -> None:
    """Everything stays unseen, and that is no problem of this Redis."""
    url = with_user(new_redis_server(), "-@all", "+@connection")

    diagnosis = look(url)

    assert diagnosis.report.is_healthy(strict=True)
    assert diagnosis.levels("processes") == ["unseen"]


def test_a_server_that_is_away_or_lets_nobody_in(look: Look, new_redis_server: NewServer) -> None:
    """That is an error, and no finding."""
    server = new_redis_server()
    client = server.client()
    client.config_set("requirepass", "secret")
    client.close()

    with pytest.raises(RedisReplyError):
        look(server.url)
    with pytest.raises(RedisConnectionError):
        look("redis://127.0.0.1:1/0")


def test_a_big_redis_is_looked_at_in_part(look: Look, redis_client: redis.Redis) -> None:
    """Head, tail and middle of 100,000 jobs, and all of a small queue."""
    ruby_process(redis_client, queues=("default", "low"))
    job = json.dumps(payload())
    pipe = redis_client.pipeline(transaction=False)
    redis_client.rpush("queue:default", json.dumps(payload("Newest")))
    for _ in range(10):
        pipe.rpush("queue:default", *[job] * 10_000)
    pipe.rpush("queue:default", json.dumps(payload("Next")))
    pipe.sadd("queues", "default")
    for number in range(20_000):
        pipe.set(f"cache:{number}", 1)
    pipe.execute()
    push(redis_client, "Rare", "low", created_at=1_700_000_000)
    python_process(redis_client, queues=("default", "low"), classes=("HardWorker",))

    began = time.monotonic()
    diagnosis = look()
    seconds = time.monotonic() - began

    assert diagnosis.report.about["jobs_waiting"] == 100_003
    assert diagnosis.report.about["jobs_looked_at"] < 1000
    assert {"Newest", "Next", "Rare"} == {name for f in diagnosis["unserved-classes"] for name in f.subjects}
    assert seconds < 60


def test_nothing_is_written(look: Look, redis_client: redis.Redis) -> None:
    """Not even a dead process is cleared away."""
    push(redis_client)
    redis_client.sadd("processes", "gone:1:aa")
    before = all_keys(redis_client)

    look()

    assert all_keys(redis_client) == before
