"""How workers find out what the Ruby side runs, without each of them asking about all."""

from collections.abc import Iterator

import pytest
import redis

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.reads import versions
from sidekiq_py.wire.process_info import PYTHON_LABEL
from tests.client.test_detection import beat, info


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    """Of one worker."""
    one = Pool(RedisSettings(redis_url))
    yield one
    one.close()


def test_one_worker_looks_for_all(pool: Pool, redis_client: redis.Redis) -> None:
    """Each on its own would cost Redis the square of the fleet; workers of ours are passed over, however many."""
    for number in range(250):
        beat(redis_client, f"app:{number}:a", info("8.1.7", PYTHON_LABEL))
        redis_client.hset("sidekiq_py:owners", f"app:{number}:a:1", "{}")
    for number in range(3):
        beat(redis_client, f"web:{number}:b", info("8.0.2"))
    beat(redis_client, "web:4:b", info("7.3.2"))
    redis_client.config_resetstat()

    found = [versions.shared_infos(pool) for _ in range(5)]

    assert all(raws == [info("8.0.2"), info("7.3.2")] for raws in found)
    assert redis_client.info("commandstats")["cmdstat_hget"]["calls"] == 4
    assert 0 < redis_client.ttl("sidekiq_py:ruby") <= 30


def test_that_nobody_was_found_holds_for_seconds(pool: Pool, redis_client: redis.Redis) -> None:
    """The Ruby side may just be starting."""
    assert versions.shared_infos(pool) == []
    assert 0 < redis_client.pttl("sidekiq_py:ruby") <= 4000

    redis_client.delete("sidekiq_py:ruby")
    beat(redis_client, "web:1:b", info("8.0.2"))
    assert versions.shared_infos(pool) == [info("8.0.2")]


@pytest.mark.parametrize("odd", ["no JSON", "{}", "[1]", "1", '{"a":1}', "[" * 5000])
def test_what_others_put_in_that_place_is_passed_over(pool: Pool, redis_client: redis.Redis, odd: str) -> None:
    """A worker then looks for itself; likewise at a key of another type."""
    beat(redis_client, "web:1:b", info("8.0.2"))
    redis_client.set("sidekiq_py:ruby", odd)
    assert versions.shared_infos(pool) == [info("8.0.2")]

    redis_client.delete("sidekiq_py:ruby")
    redis_client.lpush("sidekiq_py:ruby", odd)
    assert versions.shared_infos(pool) == [info("8.0.2")]
