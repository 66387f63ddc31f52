"""Redis forgets its last writes, as a new primary does, or a server without `appendfsync always` that has crashed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.errors import BatchRolledBackError
from tests.extensions.batches.conftest import Program

# Each step at once: a worker that writes in between would have a key of its own among those of before.
_SNAPSHOT = """
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  found[i] = {key, redis.call('DUMP', key), redis.call('PTTL', key)}
end
return found
"""


@contextmanager
def forgotten(client: redis.Redis) -> Iterator[None]:
    """Redis forgets what is written within."""
    before = client.eval(_SNAPSHOT, 0)
    yield
    with client.pipeline(transaction=True) as rollback:
        rollback.flushdb()
        for key, value, ttl in before:
            rollback.restore(key, max(ttl, 0), value)
        rollback.execute()


def add_elsewhere(app: Program, batch: Batch, count: int) -> None:
    """Another thread adds jobs to the batch, one by one."""

    def add() -> None:
        with Batch.find(batch.bid).jobs():
            for _ in range(count):
                app.deed.perform_async("other")

    thread = threading.Thread(target=add)
    thread.start()
    thread.join()


def test_a_block_goes_on_if_redis_has_lost_its_numbers(app: Program, worker: Any) -> None:
    """The jobs that are pushed afterwards are members, and the batch ends with them."""
    batch = sidekiq.Batch()

    with batch.jobs():
        with forgotten(app.client):
            app.deed.perform_async("forgotten")
        app.deed.perform_async("ok")
        app.deed.perform_bulk([["ok"]] * 300, batch_size=100)
    app.wait_until_idle()

    status = batch.status()
    assert (status.total, status.pending, status.success) == (301, 0, True)


def test_others_do_not_get_the_numbers_of_a_block_that_goes_on(app: Program, worker: Any) -> None:
    """Neither those that it has used, nor those that it may still use."""
    batch = sidekiq.Batch()

    with batch.jobs():
        with forgotten(app.client):
            app.deed.perform_async("forgotten")
        app.deed.perform_async("ok")
        add_elsewhere(app, batch, 3)
        app.deed.perform_async("ok")
    app.wait_until_idle()

    status = batch.status()
    assert (status.total, status.pending, status.success) == (5, 0, True)


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_push_whose_numbers_others_have_got_is_refused_once(app: Program, worker: Any, *, is_bulk: bool) -> None:
    """The next push has other numbers."""
    batch = sidekiq.Batch()

    def push() -> None:
        if is_bulk:
            app.deed.perform_bulk([["ok"]] * 2)
        else:
            app.deed.perform_async("ok")

    with batch.jobs():
        with forgotten(app.client):
            app.deed.perform_async("forgotten")
        add_elsewhere(app, batch, 3)
        with pytest.raises(BatchRolledBackError, match="push it again"):
            push()
        push()
    app.wait_until_idle()

    status = batch.status()
    assert (status.total, status.pending, status.success) == (3 + (2 if is_bulk else 1), 0, True)
    assert sum(run == ("ok",) for run in app.runs) == status.total - 3


def test_the_numbers_of_a_program_that_never_pushed_expire(app: Program) -> None:
    """All keys of a batch have a time to live, also if the program dies right after it has reserved numbers."""
    batch = sidekiq.Batch()

    with batch.jobs():
        steps.call(batch._client.pool, "reserve", batch.bid, 16, "sender")

        assert app.client.ttl(steps.blocks_key(batch.bid)) > 0
