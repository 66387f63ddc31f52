"""The ids of revoked jobs, as the script keeps them."""

import pytest
import redis

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.extension import revoked

NOW = 2_000_000_000.0


def test_a_job_that_nobody_has_fetched_cannot_start(pool: Pool, redis_client: redis.Redis) -> None:
    """Only a job in flight may have been fetched before it was revoked."""
    redis_client.hset("sidekiq_py:owners", "me:1:a:1", '{"queues":["default"]}')
    redis_client.hset("sidekiq_py:inflight:me:1:a:1", "f", '{"jid":"other"}')

    assert revoked.revoke(pool, ["a"], now=NOW, kept_seconds=60) == revoked.Revoked(False, 0)
    redis_client.lpush("sidekiq_py:inbox:me:1:a:1:default", '{"jid":"a"}')
    assert revoked.revoke(pool, ["a"], now=NOW, kept_seconds=60) == revoked.Revoked(True, 0)


@pytest.mark.parametrize("owners", [50, 2000])
def test_a_revoke_looks_at_a_limited_number_of_jobs_in_flight(
    pool: Pool, redis_client: redis.Redis, owners: int
) -> None:
    """A search through all of a large fleet's held Redis up for half a second; a short wait costs Redis nothing."""
    for number in range(owners):
        redis_client.hset("sidekiq_py:owners", f"me:{number}:a:1", '{"queues":["default","low"]}')
        redis_client.rpush(f"sidekiq_py:inbox:me:{number}:a:1:low", *['{"jid":"other"}'] * 20)
    redis_client.config_resetstat()

    assert revoked.revoke(pool, ["a"], now=NOW, kept_seconds=60).may_start

    called = {name: stats["calls"] for name, stats in redis_client.info("commandstats").items()}
    assert sum(called.values()) < 2000


def test_a_revoke_reads_a_limited_number_of_bytes_in_flight(pool: Pool, redis_client: redis.Redis) -> None:
    """Jobs may have megabytes, which a script copies."""
    redis_client.hset("sidekiq_py:owners", "me:1:a:1", '{"queues":["default"]}')
    for number in range(9):
        redis_client.lpush("sidekiq_py:inbox:me:1:a:1:default", f'{{"jid":"other{number}"}}' + " " * 600_000)
    redis_client.config_resetstat()

    assert revoked.revoke(pool, ["a"], now=NOW, kept_seconds=60).may_start

    assert redis_client.info("commandstats")["cmdstat_lindex"]["calls"] == 2


def test_a_second_revoke_ends_none_sooner(pool: Pool) -> None:
    """The first asked for longer."""
    revoked.revoke(pool, ["a"], now=NOW, kept_seconds=600)
    revoked.revoke(pool, ["a"], now=NOW, kept_seconds=6)

    assert revoked.is_revoked(pool, "a", NOW + 500)


def test_ids_that_are_revoked_now_are_not_dropped_to_make_room(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier ones are, those that end first before the others."""
    monkeypatch.setattr(revoked, "MOST_KEPT", 2)
    revoked.revoke(pool, ["old"], now=NOW, kept_seconds=60)

    assert revoked.revoke(pool, ["a", "b", "c"], now=NOW, kept_seconds=60).forgotten == 1
    assert sorted(revoked.list_revoked(pool, NOW, 10)) == ["a", "b", "c"]
