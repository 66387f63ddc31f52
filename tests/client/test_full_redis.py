"""A Redis whose memory is full refuses every push, also those that a script makes, and says what to do."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import settle_script
from tests.support.redis_server import RedisServer
from tests.support.stored_keys import all_keys

JOB = sidekiq.ruby_job("Row")


@pytest.fixture
def server(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """Not full yet."""
    return new_redis_server()


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """For a look at what is stored."""
    with server.client() as one:
        yield one


def fill(client: redis.Redis) -> dict[bytes, bytes | None]:
    """From here on memory is full. Returns everything that is stored."""
    client.config_set("maxmemory", 1)
    return all_keys(client)


def stored(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Everything that is stored."""
    client.config_set("maxmemory", 0)
    return all_keys(client)


PUSHES: dict[str, Callable[[], object]] = {
    "one": lambda: JOB.perform_async(1),
    "many": lambda: JOB.perform_bulk([[number] for number in range(10)]),
    "awaited": lambda: asyncio.run(JOB.aperform_async(1)),
}


@pytest.mark.parametrize("push", PUSHES.values(), ids=PUSHES)
def test_a_push_into_a_batch_is_refused(server: RedisServer, client: redis.Redis, push: Callable[[], object]) -> None:
    """The batch stays as it was. Only the ends of jobs are written to a full Redis, because they free memory."""
    sidekiq.configure(redis_url=server.url)
    batch = sidekiq.Batch()
    with batch.jobs():
        JOB.perform_async(0)
        before = fill(client)
        with pytest.raises(RedisReplyError, match="This Redis is full, and the job is not enqueued") as caught:
            push()
        assert stored(client) == before

    assert caught.value.code == "OOM"


def test_what_is_no_push_is_written_to_a_full_redis(server: RedisServer, client: redis.Redis) -> None:
    """Such as the end of a job that ran at most once."""
    fill(client)
    with closing(Pool(RedisSettings(server.url))) as pool, pool.link() as link:
        settle_script.write(link, [("SET", "result", "1")])

    assert client.get("result") == b"1"


def test_an_end_may_have_words_without_a_hash(redis_url: str, redis_client: redis.Redis) -> None:
    """A word is only compared with the names of verbs."""
    with closing(Pool(RedisSettings(redis_url))) as pool, pool.link() as link:
        settle_script.write(link, [("SET", "result", memoryview(bytearray(b"1")))])

    assert redis_client.get("result") == b"1"
