"""A processor whose job's end has something to write fetches by itself, without becoming the leader."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
import redis

from sidekiq_py.clock import now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.wire import keys
from tests.engine.fetch.in_flight_jobs import push
from tests.support.waiting import eventually

A, B, C = '{"jid":"a"}', '{"jid":"b"}', '{"jid":"c"}'
WRITES = [("SET", "result", "1")]


@pytest.fixture
def ownership() -> Ownership:
    """The owners that the fetcher becomes."""
    return Ownership("me:1:abc", ["default"], 30)


@pytest.fixture
def downtime() -> Downtime:
    """The fetcher's record of outages."""
    return Downtime()


@pytest.fixture
def fetcher(pool: Pool, ownership: Ownership, downtime: Downtime) -> Iterator[ReliableFetcher]:
    """Of one queue. Its flusher does not run, so that nothing is put back unasked."""
    one = ReliableFetcher(
        CapsuleConfig(), Config(), pool, ownership, report=lambda error, context: None, downtime=downtime
    )
    yield one
    one.close()


@contextmanager
def taking(fetcher: ReliableFetcher) -> Iterator[Callable[[], UnitOfWork]]:
    """Take a job in a thread of its own. Yields a function that waits for it, for less time than a move stays open."""
    got: list[UnitOfWork] = []
    thread = threading.Thread(target=lambda: got.extend(filter(None, [fetcher.take()])))
    thread.start()

    def taken() -> UnitOfWork:
        eventually(lambda: len(got) == 1, within_seconds=BLOCK_SECONDS / 2)
        return got[0]

    try:
        yield taken
    finally:
        if not got:
            fetcher.quiet()
        thread.join()


def is_waiting(client: redis.Redis) -> bool:
    """A blocking move is open."""
    return bool(client.info("clients")["blocked_clients"] == 1)


def waited_for(fetcher: ReliableFetcher, client: redis.Redis) -> UnitOfWork:
    """A job that a processor had to wait for."""
    with taking(fetcher) as taken:
        eventually(lambda: is_waiting(client))
        push(client, A)
        unit = taken()
    # It would be true if the job came within a millisecond, and then a fetch comes before the next wait.
    fetcher._leader._has_backlog = False
    return unit


def test_an_owner_that_was_recovered_is_followed_by_one_that_is_registered(
    fetcher: ReliableFetcher, ownership: Ownership, redis_client: redis.Redis, pool: Pool
) -> None:
    """Before it waits: if its process died, nobody would look for jobs in the inbox of an owner that is not."""
    unit, owner = waited_for(fetcher, redis_client), ownership.current
    redis_client.delete(keys.lease(owner.name))
    with pool.link() as link:
        assert in_flight.fence(link, owner.name, certain=True, now=now_seconds())
    owner.confirmed_at -= 1000
    fetcher.finish(unit, WRITES, (), 0.001)

    with taking(fetcher) as taken:
        eventually(lambda: is_waiting(redis_client))
        following = ownership.current
        assert following is not owner
        assert redis_client.hkeys(keys.OWNERS) == [following.name.encode()]
        push(redis_client, B)
        assert (taken().raw, taken().owner) == (B.encode(), following)


def test_an_idle_owner_that_was_forgotten_is_followed_by_one_that_is_registered(
    fetcher: ReliableFetcher,
    ownership: Ownership,
    redis_client: redis.Redis,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after FLUSHALL: the next one registers as soon as the open move ends, not with the first job."""
    monkeypatch.setattr("sidekiq_py.engine.fetch.waiters.BLOCK_SECONDS", 0.1)
    with taking(fetcher):
        eventually(lambda: is_waiting(redis_client))
        redis_client.flushall()

        def is_registered() -> bool:
            with pool.link() as link:
                ownership.renew(link)
            return bool(redis_client.hkeys(keys.OWNERS) == [ownership.current.name.encode()])

        eventually(is_registered)


def test_a_refusal_is_over_when_such_a_fetch_succeeds(fetcher: ReliableFetcher, downtime: Downtime) -> None:
    """Nothing else would end it in a process where each job's end has something to write."""
    downtime.failed(RedisReplyError("NOPERM"), "default: fetching")

    fetcher._buffer.refill_beside(1)

    assert not downtime.is_on


def test_an_outage_is_not_over_when_nothing_was_sent(fetcher: ReliableFetcher, downtime: Downtime) -> None:
    """As while the event loop has no room for the jobs of any queue."""
    downtime.failed(RedisConnectionError("out of reach"), "default: fetching")
    fetcher._buffer.stop()

    fetcher._buffer.refill_beside(1)

    assert downtime.is_on


def test_a_refused_move_is_not_over_when_the_wait_was_interrupted(
    fetcher: ReliableFetcher, downtime: Downtime, redis_client: redis.Redis
) -> None:
    """The reply may still be on its way. Otherwise each job that ends would log that Redis is online again."""
    with taking(fetcher):
        eventually(lambda: is_waiting(redis_client))
        downtime.failed(RedisReplyError("NOPERM"), "default: waiting")
        # The end of this block interrupts the wait.

    assert downtime.is_on


def test_a_refused_move_is_over_when_one_brings_a_job(
    fetcher: ReliableFetcher, downtime: Downtime, redis_client: redis.Redis
) -> None:
    downtime.failed(RedisReplyError("NOPERM"), "default: waiting")

    waited_for(fetcher, redis_client)

    assert not downtime.is_on


@pytest.mark.parametrize(
    ("error", "work", "is_refused"),
    [
        (RedisReplyError("NOPERM"), "default: fetching", True),
        (RedisReplyError("NOPERM"), "other: fetching", False),
        (RedisReplyError("WRONGTYPE"), "heartbeat", False),
        (RedisConnectionError("out of reach"), "heartbeat", True),
    ],
)
def test_only_refused_fetches_are_tried_before_each_wait(
    fetcher: ReliableFetcher, downtime: Downtime, error: RedisError, work: str, is_refused: bool
) -> None:
    """Another part of the process may be refused for hours."""
    downtime.failed(error, work)

    assert fetcher._redis_errors.is_refused("fetching") == is_refused


def test_a_processor_that_became_idle_meanwhile_gets_one_of_the_jobs(
    fetcher: ReliableFetcher, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for Redis, where these jobs are no longer."""
    unit = waited_for(fetcher, redis_client)
    fetch = fetcher._exchange.run
    with ExitStack() as cleanup:
        taken: list[Callable[[], UnitOfWork]] = []

        def run(queues: Sequence[tuple[str, int]], wanted: int, asked_at: float) -> list[UnitOfWork]:
            # As with jobs that are short enough to be fetched ahead.
            units = fetch(queues, wanted + 1, asked_at)
            taken.append(cleanup.enter_context(taking(fetcher)))
            eventually(lambda: is_waiting(redis_client))
            return units

        monkeypatch.setattr(fetcher._exchange, "run", run)
        push(redis_client, B, C)
        fetcher.finish(unit, WRITES, (), 0.0001)

        first = fetcher.take()
        assert first is not None
        assert {first.raw, taken[0]().raw} == {B.encode(), C.encode()}
