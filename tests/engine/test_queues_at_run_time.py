"""A fetcher at work begins with other queues, leaves some, and lets processors go."""

import json
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from tests.engine.fetch.in_flight_jobs import push
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually

Take = Callable[[], list[UnitOfWork | None]]


@pytest.fixture
def ownership() -> Ownership:
    """Of a process that serves two queues."""
    return Ownership("me:1:abc", ["high", "low"], 30)


@pytest.fixture
def fetcher(pool: Pool, ownership: Ownership) -> Iterator[ReliableFetcher]:
    """Of two queues in strict order; its keeper runs."""
    capsule = CapsuleConfig(queues=(QueueConfig("high"), QueueConfig("low")))
    one = ReliableFetcher(capsule, Config(idle_waiters=3), pool, ownership, report=lambda error, context: None)
    one.start()
    yield one
    one.quiet()
    one.close()


@pytest.fixture
def take(fetcher: ReliableFetcher) -> Take:
    """`take()` is one processor that wants one job; the list that it gives is filled when there is one."""

    def begin() -> list[UnitOfWork | None]:
        taken: list[UnitOfWork | None] = []
        threading.Thread(target=lambda: taken.append(fetcher.take()), daemon=True).start()
        return taken

    return begin


def waited_for(client: redis.Redis) -> int:
    """How many blocking moves are open."""
    return sum(one["cmd"] == "blmove" for one in client.client_list())


def published(client: redis.Redis, ownership: Ownership) -> list[str]:
    """The queues where recovery looks for this owner's jobs."""
    return json.loads(client.hget(keys.OWNERS, ownership.current.name) or b'{"queues": []}')["queues"]


def test_an_idle_process_begins_with_a_queue(
    fetcher: ReliableFetcher, take: Take, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """And waits for it as for the others; recovery knows of it first."""
    taken = take()
    eventually(lambda: waited_for(redis_client) == 2)

    fetcher.serve({"high": 0, "low": 0, "new": 0})
    eventually(lambda: waited_for(redis_client) == 3)
    assert published(redis_client, ownership) == ["high", "low", "new"]

    push(redis_client, "n1", queue="new")
    [unit] = eventually(lambda: taken)
    assert unit is not None
    assert (unit.raw, unit.queue) == (b"n1", "new")


def test_a_queue_can_take_the_place_of_another(fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis) -> None:
    """What comes to the other one afterwards stays there."""
    taken = take()
    eventually(lambda: waited_for(redis_client) == 2)

    fetcher.serve({"low": 0, "new": 0})
    eventually(lambda: not fetcher.awaits("high"))
    push(redis_client, "h1", queue="high")
    push(redis_client, "n1", queue="new")

    [unit] = eventually(lambda: taken)
    assert unit is not None
    assert unit.raw == b"n1"
    assert redis_client.lrange("queue:high", 0, -1) == [b"h1"]


def test_a_queue_that_was_served_before_is_waited_for_again(
    fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis
) -> None:
    """The registry still names it, so no fetch has to enter it there first."""
    take()
    eventually(lambda: waited_for(redis_client) == 2)
    fetcher.serve({"low": 0})
    # It ends the move that is open there, and goes back.
    push(redis_client, "h1", queue="high")
    eventually(lambda: not fetcher.awaits("high"))
    eventually(lambda: redis_client.delete("queue:high"))

    fetcher.serve({"high": 0, "low": 0})

    eventually(lambda: fetcher.awaits("high"))


def test_what_was_fetched_ahead_from_a_queue_that_is_left_goes_back(
    fetcher: ReliableFetcher, redis_client: redis.Redis
) -> None:
    """At once, and in its order."""
    push(redis_client, "h1", "h2", queue="high")
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(2)
        for unit in fetcher._buffer.jobs:
            unit.fetched_at += 60

    fetcher.serve({"low": 0})

    assert redis_client.rpop("queue:high", 9) == [b"h1", b"h2"]


def test_a_process_may_serve_no_queue_for_a_while(
    fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis
) -> None:
    """And begin with one again."""
    taken = take()
    eventually(lambda: waited_for(redis_client) == 2)

    fetcher.serve({})
    eventually(lambda: waited_for(redis_client) == 0)
    push(redis_client, "h1", queue="high")
    fetcher.serve({"high": 0})

    [unit] = eventually(lambda: taken)
    assert unit is not None
    assert unit.raw == b"h1"


def test_more_queues_than_connections_are_served_all_the_same(
    fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis
) -> None:
    """Those beyond are looked at every few milliseconds."""
    taken = take()

    fetcher.serve(dict.fromkeys(["high", "low", "third", "fourth", "fifth"], 0))
    eventually(lambda: waited_for(redis_client) == 3)
    push(redis_client, "f1", queue="fifth")

    [unit] = eventually(lambda: taken)
    assert unit is not None
    assert unit.queue == "fifth"


def test_idle_processors_can_be_let_go(fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis) -> None:
    """One stays for the next job."""
    everybody = [take() for _ in range(3)]
    eventually(lambda: fetcher._leader.idle == 3)

    fetcher.release(2)
    eventually(lambda: sum(taken == [None] for taken in everybody) == 2)
    push(redis_client, "h1", queue="high")

    eventually(lambda: all(everybody))
    assert sum(taken == [None] for taken in everybody) == 2


def test_a_busy_processor_is_let_go_when_it_comes_back(
    fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis
) -> None:
    """Though jobs wait."""
    fetcher.release(1)
    push(redis_client, "h1", queue="high")

    taken = take()
    eventually(lambda: taken)
    assert taken == [None]
    assert redis_client.lrange("queue:high", 0, -1) == [b"h1"]


def test_a_job_that_comes_while_the_only_processor_is_busy_goes_back(
    fetcher: ReliableFetcher, take: Take, redis_client: redis.Redis
) -> None:
    """The move that brings it was opened before: another process may be idle."""
    taken = take()
    eventually(lambda: waited_for(redis_client) == 2)

    push(redis_client, "h1", queue="high")
    eventually(lambda: taken)
    push(redis_client, "l1", queue="low")

    eventually(lambda: redis_client.lrange("queue:low", 0, -1) == [b"l1"] and not fetcher._waiters.any_open)
    assert jobs_in_flight(redis_client) == [b"h1"]
