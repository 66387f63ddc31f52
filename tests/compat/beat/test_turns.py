"""Turns that any number of processes keep count of, and that are taken once."""

from collections.abc import Iterator

import pytest
import redis
from sidekiq_celery._beat import turns

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

KEY = "turns"
PUSH = [("SADD", "queues", "q"), ("LPUSH", "queue:q", "a", "b")]


@pytest.fixture(params=["", "ns"], ids=["plain", "namespace"])
def pool(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Pool]:
    """With and without a namespace."""
    links = Pool(RedisSettings(redis_url, namespace=request.param))
    yield links
    links.close()


def prefix(pool: Pool) -> str:
    """What is before each key."""
    return f"{pool.settings.namespace}:" if pool.settings.namespace else ""


def test_who_has_read_the_last_value_takes_the_turn(pool: Pool, redis_client: redis.Redis) -> None:
    """And what the turn calls for is written, once."""
    assert turns.take(pool, KEY, "one", b"", b"1", PUSH)
    assert not turns.take(pool, KEY, "one", b"", b"1", PUSH)
    assert not turns.take(pool, KEY, "one", b"0", b"2", PUSH)

    assert redis_client.lrange(f"{prefix(pool)}queue:q", 0, -1) == [b"b", b"a"]
    assert redis_client.smembers(f"{prefix(pool)}queues") == {b"q"}
    assert turns.read_one(pool, KEY, "one") == (b"1", False)
    assert turns.take(pool, KEY, "one", b"1", b"2", [])


def test_a_turn_that_is_held_back_is_not_taken(pool: Pool, redis_client: redis.Redis) -> None:
    """Until it is released, with a value as of a new last turn."""
    turns.start(pool, KEY, {"one": b"1", "two": b"1"})
    turns.hold(pool, KEY, "one")
    assert not turns.take(pool, KEY, "one", b"1", b"2", PUSH)
    assert turns.take(pool, KEY, "two", b"1", b"2", [])
    assert turns.read(pool, KEY) == ({"one": b"1", "two": b"2"}, {"one"}, {})

    turns.release(pool, KEY, "one", b"5")

    assert turns.take(pool, KEY, "one", b"5", b"6", [])
    assert not redis_client.exists(f"{prefix(pool)}queue:q")


def test_a_first_value_is_given_once(pool: Pool) -> None:
    """Who comes later finds it."""
    turns.start(pool, KEY, {"one": b"1"})
    turns.start(pool, KEY, {"one": b"2"})

    assert turns.read_one(pool, KEY, "one") == (b"1", False)


def test_what_is_removed_leaves_nothing(pool: Pool, redis_client: redis.Redis) -> None:
    """Neither its description nor its value, nor that it was held back."""
    turns.add(pool, KEY, "one", b"{}", b"1")
    turns.hold(pool, KEY, "one")
    assert turns.read(pool, KEY) == ({"one": b"1"}, {"one"}, {"one": b"{}"})

    turns.remove(pool, KEY, ["one"])

    assert redis_client.keys() == []


def test_a_command_that_fails_costs_the_turn(pool: Pool, redis_client: redis.Redis) -> None:
    """Or it would be tried without end."""
    redis_client.set(f"{prefix(pool)}queue:q", "no list")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        turns.take(pool, KEY, "one", b"", b"1", PUSH)

    assert turns.read_one(pool, KEY, "one") == (b"1", False)
