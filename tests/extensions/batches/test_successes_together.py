"""Successes of one batch that one script counts."""

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches import steps


@pytest.fixture
def batch(app):
    """A batch of a hundred jobs that nobody runs."""
    one = sidekiq.Batch(description="a hundred")
    with one.jobs():
        app.deed.perform_bulk([["nothing"] for _ in range(100)])
    return one


def succeed(batch, *numbers):
    """Have these members' successes counted by one script."""
    steps.call(sync_client.current().pool, "succeed_all", batch.bid, *numbers)


def test_each_is_counted_once_however_often_it_comes(batch, redis_client):
    """A number that comes twice, again, or that nobody has reserved moves no counter."""
    succeed(batch, *range(31, 70), 31, 64, 5_000_000)
    succeed(batch, *range(60, 70), 99)

    bits = f"sidekiq_py:batch:{batch.bid}:succeeded"
    assert redis_client.bitcount(bits) == 40
    assert all(redis_client.getbit(bits, number) for number in (31, 69, 99))
    assert batch.status().pending == 60


def test_members_that_had_failed_are_so_no_more(batch):
    """A success among others takes the member's failure with it, and `complete` counts it once."""
    pool = sync_client.current().pool
    for number in (3, 40):
        steps.call(pool, "ends", batch.bid, "failed", number, f"jid-{number}", "{}")

    succeed(batch, *range(2, 41))

    status = batch.status()
    assert (status.failures, status.pending, status.complete) == (0, 61, False)
    succeed(batch, 0, 1, *range(41, 100))
    assert batch.status().success


def test_a_member_that_was_adding_adds_no_more(batch):
    """The token of a member that died in its block, and succeeds when it runs again, does not keep the batch open."""
    pool = sync_client.current().pool
    for token, number in (("a-jid", 7), ("another-jid", 8)):
        steps.call(pool, "open", batch.bid, token, number, "Deed", "0", "", 0)

    succeed(batch, 6, 7)

    assert [opener.token for opener in batch.status().openers] == ["another-jid"]


def test_a_thousand_cost_redis_a_few_commands(app, redis_client):
    """Members that run one behind the other share words of the bitmap: no command for each of them."""
    one = sidekiq.Batch()
    with one.jobs():
        app.deed.perform_bulk([["nothing"] for _ in range(1000)])
    redis_client.config_resetstat()

    succeed(one, *range(1000))

    calls = {name: stats["calls"] for name, stats in redis_client.info("commandstats").items()}
    assert sum(calls.values()) < 60, calls
