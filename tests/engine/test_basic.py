"""The basic fetcher: as Ruby's, and stopped by nothing that stands in Redis."""

import redis

from sidekiq_py.config import CapsuleConfig, QueueConfig
from sidekiq_py.engine.fetch.basic import BasicFetcher
from sidekiq_py.redis_access.connection.pool import Pool


def test_the_name_of_a_paused_queue_may_be_any_bytes(pool: Pool, redis_client: redis.Redis) -> None:
    """Somebody else wrote it: other queues are served, and those that are paused are not."""
    redis_client.sadd("paused", b"\xff", "low")
    redis_client.lpush("queue:low", "paused")
    redis_client.lpush("queue:default", "job")
    errors: list[BaseException] = []

    def give_up(error: BaseException, context: object) -> None:
        errors.append(error)
        fetcher.quiet()

    fetcher = BasicFetcher(CapsuleConfig(queues=(QueueConfig("low"), QueueConfig("default"))), pool, report=give_up)

    unit = fetcher.take()

    fetcher.close()
    assert unit is not None
    assert (unit.raw, errors) == (b"job", [])
    assert redis_client.llen("queue:low") == 1
