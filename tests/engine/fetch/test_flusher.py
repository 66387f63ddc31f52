"""The flusher sends the acknowledgements that no processor gets to, and sleeps while processors send their own."""

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from sidekiq_py.clock import monotonic
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch import flusher
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.pool import Pool
from tests.engine.fetch.in_flight_jobs import push
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually

NEVER = 3600.0


@pytest.fixture
def fetcher(pool: Pool) -> Iterator[ReliableFetcher]:
    """A fetcher whose flusher runs; the test is its processor."""
    fetcher = ReliableFetcher(
        CapsuleConfig(queues=(QueueConfig("default"),)),
        Config(),
        pool,
        Ownership("me:1:abc", ("default",), 30),
        report=lambda error, context: None,
        downtime=Downtime(),
    )
    fetcher.start()
    yield fetcher
    fetcher.quiet()
    fetcher.close()


@pytest.fixture
def unreminded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flusher never looks for what it was only reminded of."""
    monkeypatch.setattr(flusher, "REMINDER_SECONDS", NEVER)


@pytest.fixture
def take(fetcher: ReliableFetcher, redis_client: redis.Redis) -> Callable[[str], UnitOfWork]:
    """Takes a job with this id while the queue is empty, so that this thread has to wait for it."""

    def take(name: str) -> UnitOfWork:
        push_later = threading.Thread(target=_push_once_awaited, args=(fetcher, redis_client, name))
        push_later.start()
        unit = fetcher.take()
        push_later.join()
        assert unit is not None
        return unit

    return take


def _push_once_awaited(fetcher: ReliableFetcher, client: redis.Redis, name: str) -> None:
    eventually(lambda: fetcher.awaits("default"))
    push(client, f'{{"jid":"{name}"}}')


def test_a_job_is_acknowledged_while_something_keeps_its_thread_from_the_next_one(
    fetcher: ReliableFetcher, take: Callable[[str], UnitOfWork], redis_client: redis.Redis
) -> None:
    """Such as a handler of telemetry that blocks."""
    fetcher.acknowledge(take("a"), 0.001)

    eventually(lambda: not jobs_in_flight(redis_client))


@pytest.mark.usefixtures("unreminded")
def test_a_processor_that_fetches_next_does_not_wake_the_flusher(
    fetcher: ReliableFetcher, take: Callable[[str], UnitOfWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its acknowledgement goes with the fetch, also that of a slow job."""
    eventually(lambda: not fetcher._alarm.is_armed)
    ticks: list[None] = []
    monkeypatch.setattr(fetcher._flusher, "_tick", lambda: ticks.append(None))

    for name, seconds in (("a", 0.001), ("b", 0.1), ("c", 0.001)):
        fetcher.acknowledge(take(name), seconds)

    assert (ticks, fetcher._alarm.is_armed) == ([], False)


@pytest.mark.usefixtures("unreminded")
def test_a_job_is_acknowledged_while_its_thread_runs_the_next_one(
    fetcher: ReliableFetcher, take: Callable[[str], UnitOfWork], redis_client: redis.Redis
) -> None:
    """If another thread has fetched that one meanwhile, no fetch takes the acknowledgement along."""
    fetcher.acknowledge(take("a"), 0.001)
    owner = fetcher._ownership.current
    after = UnitOfWork(b'{"jid":"b"}', "default", owner, b"9.0@default", False, monotonic(), is_listed=True)
    owner.units[after.field] = after
    fetcher._buffer.jobs.append(after)

    assert fetcher.take() is after

    eventually(lambda: not jobs_in_flight(redis_client))


@pytest.mark.usefixtures("unreminded")
def test_an_acknowledgement_of_another_thread_is_sent_soon(
    fetcher: ReliableFetcher, take: Callable[[str], UnitOfWork], redis_client: redis.Redis
) -> None:
    """The event loop's thread never fetches."""
    unit = take("a")

    loop = threading.Thread(target=fetcher.acknowledge, args=(unit, 0.0))
    loop.start()
    loop.join()

    eventually(lambda: not jobs_in_flight(redis_client))
