"""The session of a program that delivers jobs to consumers of its own."""

import redis

from sidekiq_py.engine.consumer.session import ConsumerSession
from sidekiq_py.redis_access.connection.settings import RedisSettings


def test_what_was_not_delivered_goes_back_where_nobody_recovers_it(redis_client: redis.Redis, redis_url: str) -> None:
    """As with a worker's fetcher: Redis has lost its entry and its lease, so no other process knows of it."""
    redis_client.lpush("queue:default", '{"class":"A","args":[],"jid":"a"}')
    session = ConsumerSession(RedisSettings(redis_url), None, 30)
    session.visit()
    [unit], _ = session.fetch([("default", 0)], 1)
    ownership = session.ownership_for(["default"])
    redis_client.delete("sidekiq_py:owners", f"sidekiq_py:lease:{ownership.current.name}")
    session.pool.run(ownership.renew)

    assert not session.may_deliver(unit)

    session.pool.run(ownership.give_back_orphans)
    assert redis_client.lrange("queue:default", 0, -1) == [unit.raw]
    assert session.leave()
