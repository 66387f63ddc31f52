"""Pollers and promoters on servers of their own."""

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.engine.upkeep.polling import Polling
from tests.support.redis_server import RedisServer


@pytest.fixture
def polling(redis_url: str) -> Iterator[Polling]:
    """Pollers on the emptied server."""
    made = Polling(redis_url)
    yield made
    made.close()


@pytest.fixture
def restricted(new_redis_server: Callable[..., RedisServer]) -> Iterator[tuple[Polling, redis.Redis]]:
    """Pollers of a Redis user who may not use the queue `forbidden`, and a client that may."""
    server = new_redis_server()
    client = server.client()
    words = "on >secret +@all ~retry ~schedule ~dead ~queues ~queue:default ~sidekiq_py:*"
    client.execute_command("ACL", "SETUSER", "worker", *words.split())
    polling = Polling(server.url.replace("redis://", "redis://worker:secret@"))
    yield polling, client
    polling.close()
    client.close()
