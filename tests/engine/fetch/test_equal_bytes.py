"""Jobs without an id may have the same bytes and are jobs of their own: none may stand for another."""

import redis

from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.errors import ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.engine.fetch.in_flight_jobs import push
from tests.support.cutting_proxy import CuttingProxy
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer

JOB = '{"class":"Same","args":[]}'


def new_fetcher(pool: Pool) -> ReliableFetcher:
    """A fetcher whose owner is entered."""
    ownership = Ownership("me:1:abc", ["default"], 30)
    fetcher = ReliableFetcher(CapsuleConfig(), Config(), pool, ownership, report=lambda error, context: None)
    refill(fetcher)
    return fetcher


def refill(fetcher: ReliableFetcher) -> list[UnitOfWork]:
    """What a fetch for one idle processor brings."""
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(1)
    units = list(fetcher._buffer.jobs)
    fetcher._buffer.jobs.clear()
    return units


def test_a_job_whose_reply_was_lost_along_with_an_acknowledgement_goes_back(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """The acknowledgement is sent again, and must not take the next job for the one before it."""
    with CuttingProxy(redis_server.port) as proxy:
        pool = Pool(RedisSettings(proxy.url))
        fetcher = new_fetcher(pool)
        push(redis_client, JOB, JOB)
        [first] = refill(fetcher)
        fetcher.acknowledge(first, 0.001)
        proxy.cut(b"LMOVE", "before reply")
        proxy.cut(b"EVALSHA", "before reply")
        try:
            refill(fetcher)
        except ReplyLostError:
            pass

        fetcher._settler.flush()
        with pool.link() as link:
            fetcher._ownership.give_back_orphans(link)

        assert redis_client.lrange("queue:default", 0, -1) == [JOB.encode()]
        assert jobs_in_flight(redis_client) == []
        fetcher.close()
        pool.close()


def test_an_end_that_is_sent_again_leaves_another_job_alone(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """That one runs here, too, and could not be retried any more."""
    with CuttingProxy(redis_server.port) as proxy:
        pool = Pool(RedisSettings(proxy.url))
        fetcher = new_fetcher(pool)
        push(redis_client, JOB, JOB, JOB)
        [first, second, third] = [*refill(fetcher), *refill(fetcher), *refill(fetcher)]
        # Redis knows the script from here on.
        fetcher.settle(third, [("ZADD", "retry", "3", "third")], ())
        proxy.cut(b"first", "before reply")

        fetcher.settle(first, [("ZADD", "retry", "1", "first")], ())
        was_ours = fetcher.settle(second, [("ZADD", "retry", "2", "second")], ())

        assert was_ours
        assert redis_client.zrange("retry", 0, -1) == [b"first", b"second", b"third"]
        fetcher.close()
        pool.close()
