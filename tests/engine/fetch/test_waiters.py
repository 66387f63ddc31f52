"""Blocking moves with their claims."""

import time
from collections.abc import Iterator

import pytest
import redis

from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire import keys
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    """Links to the test's Redis."""
    links = Pool(RedisSettings(redis_url))
    yield links
    links.close()


@pytest.fixture
def ownership(redis_client: redis.Redis) -> Ownership:
    """An owner that is entered."""
    owned = Ownership("host:1:abc", ["default"], 30)
    redis_client.hset(keys.OWNERS, owned.current.name, owned.current.about)
    owned.current.is_registered = True
    return owned


def open_moves(redis_client: redis.Redis) -> int:
    """How many clients wait in a blocking move."""
    return sum(client["cmd"] == "blmove" for client in redis_client.client_list())


def collected(group: Waiters) -> list[UnitOfWork]:
    """What has come within a second."""
    units: list[UnitOfWork] = []
    end = time.monotonic() + 1
    while not units and time.monotonic() < end:
        units += group.collect(None, 0.1)[0]
    return units


def test_two_moves_that_are_served_in_one_turn_do_not_swap_their_jobs(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """What a unit holds is what stands in flight under its field: the wrong job would be acknowledged otherwise."""
    groups = [Waiters(pool, ownership, ["default"], 0.05) for _ in range(2)]
    for group in groups:
        group.open(())
    eventually(lambda: open_moves(redis_client) == 2)

    redis_client.lpush(keys.queue("default"), b"first", b"second")

    units = [unit for group in groups for unit in collected(group)]
    assert sorted(unit.raw for unit in units) == sorted(jobs_in_flight(redis_client)) == [b"first", b"second"]
    for group in groups:
        group.close()


def test_a_move_whose_connection_broke_here_alone_costs_no_job(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Redis serves the old move and its claim all the same; what they took is a stranger and goes back."""
    old = Waiters(pool, ownership, ["default"], 0.05)
    new = Waiters(pool, ownership, ["default"], 0.05)
    old.open(())
    new.open(())
    eventually(lambda: open_moves(redis_client) == 2)
    for waiter in old._waiters:
        waiter.close_batch()

    redis_client.lpush(keys.queue("default"), b"first", b"second")

    [unit] = collected(new)
    assert sorted(jobs_in_flight(redis_client)) == [b"first", b"second"]
    with pool.link() as link:
        assert ownership.give_back_orphans(link) == 1
    [given_back] = redis_client.lrange(keys.queue("default"), 0, -1)
    assert {given_back, unit.raw} == {b"first", b"second"}
    old.close()
    new.close()


def test_a_paused_queue_whose_job_was_not_claimed_is_left_alone_and_no_more(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """A moment that has passed, and after which nothing is waited for, would let the leader look without a rest."""
    group = Waiters(pool, ownership, ["default"], 0.01)
    group.open(())
    eventually(lambda: open_moves(redis_client) == 1)
    redis_client.sadd(keys.PAUSED, "default")
    redis_client.lpush(keys.queue("default"), b"job")
    eventually(lambda: group.collect(None, 0.1) and not group.any_open)
    assert group.cool_until > 0

    eventually(lambda: group.open(["default"]) or not group.cool_until)

    assert not group.any_open
    assert redis_client.lrange(keys.queue("default"), 0, -1) == [b"job"]
    group.close()


def test_a_queue_that_is_ended_brings_what_is_under_way_and_is_waited_for_no_more(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Other queues are."""
    group = Waiters(pool, ownership, ["default", "low"], 0.05)
    group.open(())
    eventually(lambda: open_moves(redis_client) == 2)

    group.serve(["low"])
    assert group.awaits("default")
    redis_client.lpush(keys.queue("default"), b"last")

    assert [unit.raw for unit in collected(group)] == [b"last"]
    group.open(())
    assert (group.awaits("default"), group.awaits("low")) == (False, True)
    group.close()
