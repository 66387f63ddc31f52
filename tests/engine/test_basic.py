"""The basic fetcher: as Ruby's, and stopped by nothing that stands in Redis."""

import socket
import threading

import pytest
import redis

from sidekiq_py.config import CapsuleConfig, QueueConfig
from sidekiq_py.engine.fetch import basic
from sidekiq_py.engine.fetch.basic import BasicFetcher
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings


def taken(pool: Pool, *queues: str) -> tuple[bytes | None, list[BaseException]]:
    """The job that one fetch from *queues* brings, and what is reported. After an error it brings none."""
    errors: list[BaseException] = []

    def give_up(error: BaseException, context: object) -> None:
        errors.append(error)
        fetcher.quiet()

    fetcher = BasicFetcher(CapsuleConfig(queues=tuple(map(QueueConfig, queues))), pool, report=give_up)
    unit = fetcher.take()
    fetcher.close()
    return (None if unit is None else unit.raw), errors


def test_the_name_of_a_paused_queue_may_be_any_bytes(pool: Pool, redis_client: redis.Redis) -> None:
    """Somebody else wrote it: other queues are served, and those that are paused are not."""
    redis_client.sadd("paused", b"\xff", "low")
    redis_client.lpush("queue:low", "paused")
    redis_client.lpush("queue:default", "job")

    assert taken(pool, "low", "default") == (b"job", [])
    assert redis_client.llen("queue:low") == 1


def test_a_foreign_key_named_paused_holds_up_no_job(pool: Pool, redis_client: redis.Redis) -> None:
    """The key has no prefix: any program on the same Redis may have one of that name."""
    redis_client.set("paused", "no")
    redis_client.lpush("queue:default", "job")

    assert taken(pool, "default") == (b"job", [])


def test_an_outage_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each processor, as by Ruby's. Otherwise ten threads would call error handlers ten times a second."""
    monkeypatch.setattr(basic, "_RETRY_SECONDS", 0.001)
    errors: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        pool = Pool(RedisSettings(f"redis://127.0.0.1:{server.getsockname()[1]}/0"))
        fetcher = BasicFetcher(CapsuleConfig(), pool, report=lambda error, context: errors.append(error))
        processor = threading.Thread(target=fetcher.take)
        processor.start()

        for _ in range(5):
            server.accept()[0].close()

        fetcher.begin_quiet()
        server.close()
        processor.join(10)
    fetcher.close()
    assert len(errors) == 1
