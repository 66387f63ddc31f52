"""Which servers a worker starts on, and what it warns of."""

import logging
from collections.abc import Callable

import pytest
import redis

from sidekiq_py.engine.boot_checks import ACL_KEYS, check_redis, refuse_unsupported
from sidekiq_py.errors import ConfigError, RedisConnectionError, RedisReplyError, UnsupportedRedisError
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

_REDIS_7 = {"redis_version": "7.0.15", "redis_mode": "standalone", "cluster_enabled": "0"}
_VALKEY_8 = {
    "redis_version": "7.2.4",
    "server_name": "valkey",
    "valkey_version": "8.0.1",
    "server_mode": "standalone",
    "cluster_enabled": "0",
}
_DRAGONFLY = {"redis_version": "7.4.0", "dragonfly_version": "df-v1.24.0", "redis_mode": "standalone"}


def test_a_server_that_keeps_what_it_is_given_is_taken_without_a_word(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """Every test here runs on such a one."""
    server = check_redis(pool)

    assert server.redis_version is not None
    assert (server.mode, server.maxmemory_policy) == ("standalone", "noeviction")
    assert caplog.records == []


def test_a_server_that_throws_data_away_is_warned_of(
    new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Ruby warns of the same at the same moment."""
    pool = Pool(RedisSettings(new_redis_server(config={"maxmemory-policy": "allkeys-lru"}).url))

    check_redis(pool)
    pool.close()

    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "maxmemory-policy allkeys-lru" in record.getMessage()
    assert "Set maxmemory-policy to noeviction" in record.getMessage()


def test_a_replica_is_warned_of(new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture) -> None:
    """It is no error, because a failover may make it the primary at any moment."""
    pool = Pool(RedisSettings(new_redis_server(config={"replicaof": "127.0.0.1 1"}).url))

    check_redis(pool)
    pool.close()

    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "is a replica. As long as it refuses writes, this worker runs no jobs: give the URL" in record.getMessage()


def test_a_cluster_is_refused(new_redis_server: Callable[..., RedisServer]) -> None:
    """Scripts here touch keys of many slots."""
    pool = Pool(RedisSettings(new_redis_server(config={"cluster-enabled": "yes"}).url))

    with pytest.raises(UnsupportedRedisError, match=r"is a Cluster.*redis\+sentinel://"):
        check_redis(pool)
    pool.close()


@pytest.mark.parametrize("forbidden", ["-info", "-config", "-info -config"])
def test_a_user_who_may_not_ask_starts_all_the_same(
    redis_client: redis.Redis, redis_url: str, forbidden: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosted servers forbid INFO and CONFIG. HELLO, which nobody can be forbidden, still tells the version."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", *forbidden.split())
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://worker:secret@")))

    server = check_redis(pool)
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")

    assert caplog.records == []
    assert server.redis_version is not None
    assert server.maxmemory_policy == (None if "-info -config" in forbidden else "noeviction")


def test_a_user_who_may_not_count_jobs_is_warned_of(
    redis_client: redis.Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They run all the same, and nothing else would say why the counters stay as they are."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-incrby")
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://worker:secret@")))

    check_redis(pool)
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")

    [record] = caplog.records
    text = "the jobs that this worker runs are not counted as processed or failed: NOPERM"
    assert record.getMessage().startswith(text)
    assert "'incrby' command. docs/redis.md lists the rights that each program needs" in record.getMessage()


@pytest.mark.parametrize(
    ("user", "database", "says"),
    [("nobody:wrong", 0, "NOAUTH invalid username-password pair"), ("", 99, "DB index is out of range.*port/database")],
)
def test_a_server_that_lets_nobody_in_is_refused(
    redis_server: RedisServer, user: str, database: int, says: str
) -> None:
    """Nothing that the worker asks would ever be answered."""
    pool = Pool(RedisSettings(f"redis://{user}@127.0.0.1:{redis_server.port}/{database}"))

    with pytest.raises(ConfigError, match=f"does not let this worker in.*{says}"):
        check_redis(pool)
    pool.close()


def test_a_user_who_may_not_choose_the_database_is_told_of_rights(redis_client: redis.Redis, redis_url: str) -> None:
    """The URL is right; an example of one would mislead."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-select")
    url = redis_url.replace("redis://", "redis://worker:secret@").rpartition("/")[0]
    pool = Pool(RedisSettings(f"{url}/1"))

    with pytest.raises(ConfigError, match=r"NOPERM.*'select'.*command\. docs/redis\.md lists the rights"):
        check_redis(pool)
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")


def test_a_server_that_runs_a_long_script_is_not_refused_for_good(new_redis_server: Callable[..., RedisServer]) -> None:
    """It selects no database meanwhile. With `--processes`, a refusal for good ends the worker at once."""
    server = new_redis_server(config={"lua-time-limit": "1"})
    client, pool = server.client(), Pool(RedisSettings(f"redis://127.0.0.1:{server.port}/1"))
    link = Pool(RedisSettings(server.url)).new_link()
    link.send(link.pack([("EVAL", "while true do end", 0)]))
    eventually(lambda: is_busy(client))

    try:
        with pytest.raises(RedisReplyError, match="BUSY Redis is busy"):
            check_redis(pool)
    finally:
        client.script_kill()
        link.close()
        pool.close()
        client.close()


def is_busy(client: redis.Redis) -> bool:
    """Whether the server runs a script and answers nothing else."""
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_a_server_that_asks_for_a_password_is_refused_without(new_redis_server: Callable[..., RedisServer]) -> None:
    """It lets everybody connect and answers nothing."""
    server = new_redis_server()
    client = server.client()
    client.config_set("requirepass", "secret")
    client.close()

    with pytest.raises(ConfigError, match="NOAUTH"):
        check_redis(Pool(RedisSettings(server.url)))


@pytest.mark.parametrize(
    "rules",
    [
        "~queue:* ~queues +@all",
        "~* +@all -@scripting",
        "~* +@read",
        *[f"~* +@all -{name}" for name in ("lmove", "lpos", "lrem")],
    ],
)
def test_a_user_who_may_not_use_our_keys_is_refused_with_what_it_needs(
    redis_client: redis.Redis, redis_url: str, rules: str
) -> None:
    """It would try for ever."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", *rules.split())
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://worker:secret@")))

    with pytest.raises(ConfigError, match=r"forbids this user.*~sidekiq_py:\*.*\+@all") as refused:
        check_redis(pool)
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["lpos", "lrem", "hexists", "@scripting"])
def test_a_user_of_a_replica_is_told_of_missing_rights_too(
    new_redis_server: Callable[..., RedisServer], name: str
) -> None:
    """As in a failover: a replica refuses the first write to everybody, which says nothing of the other commands."""
    server = new_redis_server(config={"replicaof": "127.0.0.1 1"})
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", f"-{name}")
    pool = Pool(RedisSettings(server.url.replace("redis://", "redis://worker:secret@")))

    with pytest.raises(ConfigError, match=r"forbids this user"):
        check_redis(pool)
    pool.close()


@pytest.mark.parametrize("served", [["good"], ["default", "good"], [f"q{number}" for number in range(500)]])
def test_a_user_is_asked_for_the_queues_that_the_worker_serves(
    redis_client: redis.Redis, redis_url: str, served: list[str]
) -> None:
    """Queue `default` may belong to another program. The keys of the first queues travel in one command."""
    rules = [rule for rule in ACL_KEYS.split() if rule != "~queue*"]
    queues = ["~queues", *[f"~queue:{name}" for name in served]]
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", *rules, *queues, "+@all", "-@dangerous")
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://worker:secret@")))
    before = redis_client.info("commandstats").get("cmdstat_exists", {"calls": 0})["calls"]

    check_redis(pool, queues=served)
    asked = redis_client.info("commandstats")["cmdstat_exists"]["calls"] - before
    with pytest.raises(ConfigError, match="forbids this user"):
        check_redis(pool, queues=["other", *served])
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")

    assert asked == 2, "one for all queues, and one in the script that renews a lease"


def test_a_user_who_may_use_what_the_refusal_names_is_taken(redis_client: redis.Redis, redis_url: str) -> None:
    """The sentence can be followed to the letter."""
    rules = [*ACL_KEYS.split(), "+@all", "-@dangerous"]
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", *rules)
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://worker:secret@")))

    check_redis(pool)
    pool.close()
    redis_client.execute_command("ACL", "DELUSER", "worker")


def test_a_cluster_is_refused_even_where_info_is_forbidden(new_redis_server: Callable[..., RedisServer]) -> None:
    """HELLO, which belongs to connecting, tells the mode, too. The message keeps the password to itself."""
    server = new_redis_server(config={"cluster-enabled": "yes"})
    client = server.client()
    client.execute_command("ACL", "SETUSER", "worker", "on", ">hush", "~*", "+@all", "-info")
    client.close()
    pool = Pool(RedisSettings(server.url.replace("redis://", "redis://worker:hush@")))

    with pytest.raises(UnsupportedRedisError, match="is a Cluster") as refused:
        check_redis(pool)
    pool.close()

    assert "worker:***@" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("facts", "shown", "version"),
    [
        (_REDIS_7, "Redis 7.0.15", (7, 0, 15)),
        (_VALKEY_8, "Valkey 8.0.1", (7, 2, 4)),
        (_DRAGONFLY, "Dragonfly 1.24.0", (7, 4, 0)),
        ({}, "Redis of an unknown version", None),
    ],
)
def test_products_are_told_apart(facts: dict[str, str], shown: str, version: tuple[int, ...] | None) -> None:
    """Valkey's and Dragonfly's own versions say nothing of what they can do; `redis_version` does."""
    server = server_info.describe(facts)

    refuse_unsupported(server, "redis://x")

    assert (str(server), server.redis_version) == (shown, version)


def test_an_empty_policy_is_no_policy() -> None:
    """Redis Enterprise reports one. It is none that loses jobs, and Sidekiq does not warn of it since 7.0.3."""
    server = server_info.describe({**_REDIS_7, "maxmemory_policy": ""})

    assert server.maxmemory_policy is None


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "6.1.242"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    """Without BLMOVE a job would be in no place for a moment."""
    server = server_info.describe({**_REDIS_7, "redis_version": version})

    with pytest.raises(UnsupportedRedisError, match=rf"Redis {version}; Redis 6\.2 or later is needed"):
        refuse_unsupported(server, "redis://x")


@pytest.mark.parametrize("renamed", ["EVAL", "EVALSHA"])
def test_a_server_that_runs_no_scripts_is_refused(new_redis_server: Callable[..., RedisServer], renamed: str) -> None:
    """The worker would try for ever, and hold back the outcome of each job that it takes."""
    server = new_redis_server(config={"rename-command": f"{renamed} HIDDEN"})

    with pytest.raises(UnsupportedRedisError, match=f"does not know {renamed}, which.*Remove that `rename-command`"):
        check_redis(Pool(RedisSettings(server.url)), keeps_in_flight=False)


def test_a_sentinel_is_refused_with_the_url_that_would_do() -> None:
    """A common slip: the sentinel's own port."""
    server = server_info.describe({**_REDIS_7, "redis_mode": "sentinel"})

    with pytest.raises(UnsupportedRedisError, match=r"is a Sentinel.*redis\+sentinel://"):
        refuse_unsupported(server, "redis://x:26379")


def test_no_server_is_an_error_of_the_connection(new_redis_server: Callable[..., RedisServer]) -> None:
    """What is out of reach is neither refused nor taken."""
    server = new_redis_server()
    server.stop()

    with pytest.raises(RedisConnectionError):
        check_redis(Pool(RedisSettings(server.url)))
