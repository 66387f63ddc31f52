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
