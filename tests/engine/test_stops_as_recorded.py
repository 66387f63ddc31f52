"""Jobs that go back to their queue at a stop, as each recorded release of real Sidekiq puts them back."""

import threading
from collections.abc import Iterator

import pytest
import redis

from interop_tests.support.recordings import Recording, bytes_of, database_of, named, recordings_of
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.fetch.basic import BasicFetcher
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.pool import Pool
from tests.support.waiting import eventually

CAPSULE = CapsuleConfig(queues=(QueueConfig("default"),))


@pytest.fixture(params=["reliable", "basic"])
def fetcher(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Fetcher]:
    """Of one queue; no thread runs."""
    if request.param == "basic":
        one: Fetcher = BasicFetcher(CAPSULE, pool, report=lambda error, context: None)
    else:
        owner = Ownership("me:1:abc", CAPSULE.queue_names, 30)
        one = ReliableFetcher(CAPSULE, Config(), pool, owner, report=lambda error, context: None)
    yield one
    one.close()


@pytest.mark.parametrize(
    "found", named(*recordings_of("hard_stop_requeues"), *recordings_of("fetched_while_stopping_goes_back"))
)
def test_a_job_goes_back_to_the_tail_as_it_came(found: Recording, fetcher: Fetcher, redis_client: redis.Redis) -> None:
    """Byte for byte, in foreign spelling too, and it is the next to run."""
    redis_client.sadd("queues", "default")
    redis_client.rpush("queue:default", *[bytes_of(raw) for raw in found.input["before"]])

    unit = fetcher.take()
    assert unit is not None
    fetcher.requeue([unit])

    assert database_of(redis_client)["queue:default"] == found.database["queue:default"]


def test_a_job_that_arrives_at_a_stop_goes_back(fetcher: Fetcher, redis_client: redis.Redis) -> None:
    """The stop may have interrupted it a moment ago."""
    taken: list[UnitOfWork | None] = []
    fetcher.start()
    thread = threading.Thread(target=lambda: taken.append(fetcher.take()))
    thread.start()
    eventually(lambda: blocked_clients(redis_client) == 1)

    fetcher.begin_quiet()
    redis_client.lpush("queue:default", "job")
    thread.join()
    fetcher.quiet()

    assert taken == [None]
    eventually(lambda: redis_client.lrange("queue:default", 0, -1) == [b"job"])


def blocked_clients(client: redis.Redis) -> int:
    """How many connections wait for a job."""
    return int(client.info("clients")["blocked_clients"])
