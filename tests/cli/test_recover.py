"""`sidekiq-py recover`, where no worker of ours is left."""

import json
from collections.abc import Callable

import pytest
import redis
from click.testing import Result

from sidekiq_py.redis_access.pool import Pool
from sidekiq_py.redis_access.settings import RedisSettings
from tests.engine.in_flight_jobs import fetch, push


@pytest.mark.parametrize("flag", ["-u", "--redis-url"])
def test_the_jobs_of_a_dead_worker_go_back_to_their_queue(
    run: Callable[..., Result], redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """On the Redis that a flag names, as with its siblings."""
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    push(redis_client, json.dumps({"class": "HardWorker", "args": [], "jid": "a1"}))
    pool = Pool(RedisSettings(redis_url))
    with pool.link() as link:
        assert len(fetch(link)) == 1
    pool.close()

    result = run("recover", flag, redis_url, "--all", "--json")

    assert (result.exit_code, result.output) == (0, '{"recovered": 1, "alive": []}\n')
    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["jid"] == "a1"
