"""Pushes to a primary that sentinels know."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import sidekiq_py as sidekiq
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel


def test_both_clients_find_the_primary(new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    """By asking, at each new connection."""
    primary = new_redis_server()
    with Sentinel(primary, tmp_path) as sentinel:
        sidekiq.configure(redis_url=sentinel.url, sidekiq_version="7")
        job = sidekiq.ruby_job("A")

        jids = [job.perform_async(1), asyncio.run(job.aperform_async(2))]

    stored = primary.client()
    assert [json.loads(raw)["jid"] for raw in reversed(stored.lrange("queue:default", 0, -1))] == jids
    stored.close()
