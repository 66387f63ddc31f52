"""`sidekiq-py recover`, with no Python worker running."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from click.testing import Result

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import recover
from tests.engine.fetch.in_flight_jobs import OWNER, fetch, push
from tests.web.conftest import round_trips

__all__ = ["round_trips"]


@pytest.mark.parametrize("flag", ["-u", "--redis-url"])
def test_the_jobs_of_a_dead_worker_go_back_to_their_queue(
    run: Callable[..., Result], redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """On the Redis that a flag names, as for the other commands."""
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    push(redis_client, json.dumps({"class": "HardWorker", "args": [], "jid": "a1"}))
    pool = Pool(RedisSettings(redis_url))
    with pool.link() as link:
        assert len(fetch(link)) == 1
    pool.close()

    result = run("recover", flag, redis_url, "--all", "--json")

    assert (result.exit_code, result.output) == (0, '{"recovered": 1, "alive": [], "waiting": []}\n')
    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["jid"] == "a1"


@pytest.fixture
def lost(redis_url: str, redis_client: redis.Redis) -> str:
    """The URL of a Redis that lost its registry while a worker had one job in flight and one in its inbox."""
    push(redis_client, "in flight")
    pool = Pool(RedisSettings(redis_url))
    with pool.link() as link:
        assert len(fetch(link)) == 1
    pool.close()
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:a:queue", "in the inbox")
    redis_client.delete("sidekiq_py:owners")
    return redis_url


def test_what_an_owner_in_no_registry_has_goes_back(
    run: Callable[..., Result], lost: str, redis_client: redis.Redis
) -> None:
    """The owner is found by the names of its keys."""
    result = run("recover", "--all", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"recovered": 2, "alive": [], "waiting": []}
    assert f"{OWNER} has jobs in flight but was not registered" in result.stderr
    assert redis_client.lrange("queue:default", 0, -1) == [b"in flight"]
    assert redis_client.lrange("queue:a:queue", 0, -1) == [b"in the inbox"]


def test_an_owner_in_no_registry_that_was_heard_of_lately_keeps_its_jobs(
    run: Callable[..., Result], lost: str, redis_client: redis.Redis
) -> None:
    """Its process may still be running them, so they would run twice."""
    assert json.loads(run("recover", "--json").stdout)["recovered"] == 0

    assert redis_client.hlen(f"sidekiq_py:inflight:{OWNER}") == 1


def test_a_silent_owner_in_no_registry_is_recovered_by_its_lease(lost: str, redis_client: redis.Redis) -> None:
    """Once registered again, it is an owner like any other: if its lease is missing twice, it is dead."""
    redis_client.delete(f"sidekiq_py:lease:{OWNER}")
    pool = Pool(RedisSettings(lost))
    with pool.link() as link:
        found = recover.lost_owners(link)
        entered = [recover.enter_lost(link, OWNER, found[OWNER]) for _ in range(2)]
        left = recover.lost_owners(link)

    pool.close()
    assert found == {OWNER: ["a:queue"]}
    assert (entered, left) == ([True, False], {})
    assert json.loads(redis_client.hget("sidekiq_py:owners", OWNER) or "")["queues"] == ["a:queue"]


def test_the_leases_of_all_owners_are_read_together(
    run: Callable[..., Result], redis_client: redis.Redis, round_trips: Callable[..., Any]
) -> None:
    """One by one, those of a thousand owners would take over three minutes on a link with 100 ms."""
    counts = []
    for owners in (2, 20):
        for number in range(owners):
            redis_client.hset("sidekiq_py:owners", f"app:{number}:0123456789ab:0", "{}")
            redis_client.set(f"sidekiq_py:lease:app:{number}:0123456789ab:0", "1", ex=60)
            redis_client.hset(f"sidekiq_py:inflight:app:{number}:0123456789ab:0", "1.0:default", "{}")
        with round_trips() as made:
            waiting = json.loads(run("recover", "--json").stdout)["waiting"]
        assert len(waiting) == owners
        counts.append(made.count)

    assert counts[0] == counts[1]


def test_a_user_who_may_not_scan_is_told(
    run: Callable[..., Result], lost: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of registered owners are recovered all the same."""
    redis_client.hset("sidekiq_py:owners", OWNER, "{}")
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-scan")
    monkeypatch.setenv("REDIS_URL", lost.replace("redis://", "redis://worker:secret@"))

    result = run("recover", "--all", "--json")

    redis_client.execute_command("ACL", "DELUSER", "worker")
    assert json.loads(result.stdout)["recovered"] == 1
    assert "Grant it +scan" in result.stderr


def test_a_user_who_may_not_select_a_database_is_not_told_about_scan(
    run: Callable[..., Result], redis_url: str, redis_client: redis.Redis
) -> None:
    """The one error names the command that the user may not run."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-select")

    result = run("recover", "-u", f"{redis_url.replace('redis://', 'redis://worker:secret@')}/1")

    redis_client.execute_command("ACL", "DELUSER", "worker")
    assert result.exit_code == 1
    assert "'select'" in result.stderr
    assert "scan" not in result.stderr


def test_a_registry_of_a_wrong_type_is_not_taken_for_a_lack_of_permission(
    run: Callable[..., Result], redis_client: redis.Redis
) -> None:
    """The error says how to find the key."""
    redis_client.set("sidekiq_py:owners", "not a hash")

    result = run("recover")

    assert result.exit_code == 1
    assert "sidekiq-py doctor" in result.stderr
    assert "permission" not in result.stderr


def test_jobs_that_wait_for_a_lease_are_named_with_its_end(
    run: Callable[..., Result], redis_url: str, redis_client: redis.Redis
) -> None:
    """Otherwise the user would not know why nothing came back, and when it will."""
    push(redis_client, "first", "second")
    pool = Pool(RedisSettings(redis_url))
    with pool.link() as link:
        assert len(fetch(link, max_jobs=2, batch=2)) == 2
    pool.close()

    shown = run("recover").stdout
    [waiting] = json.loads(run("recover", "--json").stdout)["waiting"]

    assert f"2 jobs in flight at {OWNER}, whose lease is still valid: it expires in " in shown
    assert "run this command again" in shown
    assert (waiting["owner"], waiting["jobs"]) == (OWNER, 2)
    assert 0 < waiting["lease_ends_in"] <= 30
    assert redis_client.hlen(f"sidekiq_py:inflight:{OWNER}") == 2
