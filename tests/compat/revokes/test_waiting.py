"""Calling up jobs that wait: each on its own."""

import redis
from sidekiq_celery._admission import waiting

from sidekiq_py import Client

GOOD = b'{"class":"A","args":[],"queue":"default","jid":"good"}'
# Ruby reads it, and nobody can write it again.
UNWRITABLE = b'{"class":"A","args":[1E400],"queue":"default","jid":"bad"}'


def test_one_that_cannot_be_written_again_stays_and_holds_up_no_other(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Only the good one goes to its queue."""
    redis_client.zadd("schedule", {UNWRITABLE: 1, GOOD: 2})
    client = Client(redis_url)

    waiting.call_up(client, "schedule", "class", ["A"], lambda payload: True)

    client.close()
    assert redis_client.zrange("schedule", 0, -1) == [UNWRITABLE]
    assert redis_client.llen("queue:default") == 1
