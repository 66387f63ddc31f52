"""Pushes to a primary that sentinels know."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import ConfigError
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


def test_options_in_the_url_are_for_the_connections_to_the_primary(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """As with any other URL, by both clients. The sentinels say where the primary is."""
    primary = new_redis_server()
    stored = primary.client()
    with Sentinel(primary, tmp_path) as sentinel:
        sidekiq.configure(redis_url=f"{sentinel.url}?client_name=shop&port=1", sidekiq_version="6")
        job = sidekiq.ruby_job("A")

        job.perform_async(1)
        names = [client["name"] for client in stored.client_list()]
        asyncio.run(job.aperform_async(2))

    assert "shop" in names
    assert stored.llen("queue:default") == 2
    stored.close()


@pytest.mark.parametrize(
    ("option", "advice"),
    [("client_nam=shop", "Remove it"), ("sentinel_pasword=hush", "Those for the sentinels are sentinel_username")],
)
def test_a_misspelled_option_is_refused(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path, option: str, advice: str
) -> None:
    """If it were ignored, so would be what it is meant to change."""
    with Sentinel(new_redis_server(), tmp_path) as sentinel:
        sidekiq.configure(redis_url=f"{sentinel.url}?{option}", sidekiq_version="6")
        job = sidekiq.ruby_job("A")
        expected = rf"redis\+sentinel:// has no option {option.partition('=')[0]}\. {advice}"

        with pytest.raises(ConfigError, match=expected):
            job.perform_async(3)
        with pytest.raises(ConfigError, match=expected):
            asyncio.run(job.aperform_async(4))
