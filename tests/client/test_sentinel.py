"""Pushes to a primary that sentinels know."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import sidekiq_py as sidekiq
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel


@pytest.mark.parametrize(("namespace", "key"), [("", "queue:default"), ("myapp", "myapp:queue:default")])
def test_both_clients_find_the_primary(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path, namespace: str, key: str
) -> None:
    """By asking, at each new connection; a namespace goes along."""
    primary = new_redis_server()
    with Sentinel(primary, tmp_path) as sentinel:
        sidekiq.configure(redis_url=sentinel.url, sidekiq_version="6", namespace=namespace)
        job = sidekiq.ruby_job("A")

        jids = [job.perform_async(1), asyncio.run(job.aperform_async(2))]

    stored = primary.client()
    assert [json.loads(raw)["jid"] for raw in reversed(stored.lrange(key, 0, -1))] == jids
    stored.close()
