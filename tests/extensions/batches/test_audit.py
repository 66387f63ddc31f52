"""Members that were lost, and what only the maintenance of a fleet puts right."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import ScheduledSet
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.audit import Audit, _waits_for_others, waiting_numbers
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.extensions.batches.conftest import Program
from tests.support.waiting import eventually


@pytest.fixture
def pool(app: Program) -> Pool:
    """Links to the program's Redis."""
    return sync_client.current().pool


@pytest.fixture
def audit() -> Audit:
    """Looks at batches that have just moved, too."""
    return Audit(quiet_seconds=-1)


def opened(app: Program, *names: str) -> Batch:
    """A batch with these jobs and a callback for each event."""
    batch = sidekiq.Batch()
    for event in ("complete", "success", "death"):
        batch.on(event, app.callback, None)
    with batch.jobs():
        for name in names:
            app.deed.perform_async(name)
    return batch


def test_batches_that_have_ended_are_forgotten(app: Program, pool: Pool, audit: Audit) -> None:
    """A process that has checked a batch would otherwise remember it for as long as it runs."""
    batch = opened(app, "ok")
    audit.run(pool)
    with sidekiq.embed(concurrency=1):
        batch.wait(10, until="success")

    audit.run(pool)

    assert audit._next_looks == {}


def test_many_lost_jobs_of_a_batch_are_logged_in_one_line(
    app: Program, pool: Pool, audit: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    """They are found a thousand at a time, but told together."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["taken"]] * 2500)
    app.client.delete("queue:default")

    audit.run(pool)
    audit.run(pool)

    assert batch.status().lost == 2500
    [line] = [record.getMessage() for record in caplog.records if "has lost" in record.getMessage()]
    assert f"batch {batch.bid} has lost 2,500 jobs" in line


def test_lost_jobs_that_could_still_add_are_given_up_together(app: Program, pool: Pool, audit: Audit) -> None:
    """A thousand of them, each looked for among the thousand that may add, block Redis for more than a second."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["taken"]] * 200)
    for number in range(200):
        steps.call(pool, "open", batch.bid, f"jid{number}", number, "Deed", "0", "", 0)
    app.client.delete("queue:default")
    audit.run(pool)
    app.client.config_resetstat()

    audit.run(pool)

    assert (batch.status().lost, batch.status().openers) == (200, [])
    calls = {name: stats["calls"] for name, stats in app.client.info("commandstats").items()}
    assert calls["cmdstat_hget"] + calls["cmdstat_hkeys"] < 2000


def test_the_numbers_of_a_failed_push_are_no_lost_jobs(app: Program, pool: Pool, audit: Audit) -> None:
    """Each push takes numbers before it is sent. If those of failed ones counted, `complete` would come early."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("first")
        app.client.set("queue:taken", "by another program")
        for _ in range(3):
            with pytest.raises(RedisReplyError):
                app.deed.set(queue="taken").perform_async("refused")
        app.deed.perform_async("second")

    audit.run(pool)
    audit.run(pool)

    status = batch.status()
    assert (status.total, status.pending, status.untried, status.lost) == (2, 2, 2, 0)
    assert (status.complete, status.death_at) == (False, None)


def test_nor_are_those_of_a_bulk_push_that_failed_halfway(app: Program, pool: Pool) -> None:
    """The next one, in the same block of numbers, goes by scripts until that is used up, then by transactions."""
    batch = sidekiq.Batch()

    def rows() -> Iterator[list[str]]:
        for number in range(500):
            if number == 300:
                raise ValueError("the source broke off")
            yield [f"row {number}"]

    with batch.jobs():
        app.deed.perform_bulk([["before"]] * 200, batch_size=100)
        app.client.rename("queue:default", "kept")
        app.client.set("queue:default", "by another program")
        with pytest.raises(RedisReplyError):
            app.deed.perform_bulk([["refused"]] * 300, batch_size=100)
        app.client.rename("kept", "queue:default")
        with pytest.raises(ValueError, match="broke off"):
            app.deed.perform_bulk(rows(), batch_size=100)
        app.client.config_resetstat()
        app.deed.perform_bulk([["after"]] * 2000, batch_size=100)

    waiting = {payload["sidekiq_py_batch"][1] for payload in app.waiting()}
    assert len(waiting) == 2500
    assert waiting_numbers(pool, batch.bid) == waiting
    assert app.client.info("commandstats")["cmdstat_exec"]["calls"] > 10


def test_a_batch_of_very_many_blocks_is_read_in_parts(app: Program, pool: Pool) -> None:
    """Jobs that are added one by one have a block each, and a reply with a million of them blocks Redis."""
    batch = opened(app, "a")
    app.client.hset(steps.blocks_key(batch.bid), mapping={str(number): 1 for number in range(1, 4000)})
    app.client.hset(steps.key(batch.bid), "next", 4000)
    app.client.hset(f"{steps.key(batch.bid)}:members", mapping={str(number): "dead:x" for number in range(1000, 4000)})
    app.client.config_resetstat()

    assert waiting_numbers(pool, batch.bid) == {*range(1000)}

    assert app.client.info("commandstats")["cmdstat_hscan"]["calls"] > 5


def test_very_many_children_are_counted_in_one_step_only_if_some_have_gone(
    app: Program, pool: Pool, audit: Audit
) -> None:
    """The step reads all of them at once, and ten thousand of them block Redis."""
    parent = sidekiq.Batch()
    children = [sidekiq.Batch() for _ in range(100)]
    with parent.jobs():
        for child in children:
            with child.jobs():
                app.deed.perform_async("ok")
    app.client.config_resetstat()
    audit.run(pool)
    assert app.client.info("commandstats").get("cmdstat_type", {"calls": 0})["calls"] < 50

    app.client.delete(steps.key(children[0].bid))
    audit.run(pool)

    assert parent.status().pending_children == 99


@pytest.mark.parametrize("dies_in_between", [False, True])
def test_children_that_have_expired_are_not_read_in_the_step_that_counts(
    dies_in_between: bool, app: Program, pool: Pool, audit: Audit
) -> None:
    """Thirty thousand of them blocked Redis for more than a second. They are removed before, by whichever process."""
    parent = sidekiq.Batch()
    children = [sidekiq.Batch() for _ in range(100)]
    with parent.jobs():
        for child in children:
            with child.jobs():
                app.deed.perform_async("ok")
    app.client.delete(*(steps.key(child.bid) for child in children[1:]))
    app.client.config_resetstat()

    if dies_in_between:
        assert _waits_for_others(pool, parent.bid)
    audit.run(pool)

    assert parent.status().pending_children == 1
    assert app.client.smembers(f"{steps.key(parent.bid)}:children") == {children[0].bid.encode()}
    assert app.client.info("commandstats")["cmdstat_type"]["calls"] < 50


def test_a_job_that_is_nowhere_is_lost(app: Program, pool: Pool, audit: Audit) -> None:
    """After two looks; that is a death, and `complete` follows."""
    batch = opened(app, "ok", "taken")
    app.client.ltrim("queue:default", 1, -1)

    audit.run(pool)
    assert batch.status().lost == 0
    audit.run(pool)

    status = batch.status()
    assert (status.lost, status.pending, status.complete) == (1, 2, False)
    assert [(one["number"], one["state"]) for one in status.as_dict()["members"]] == [(1, "lost")]
    with sidekiq.embed(concurrency=1):
        batch.wait(60)
        app.wait_until_idle()
    assert app.events(batch.bid) == ["complete", "death"]


def test_a_job_in_a_queue_that_may_not_be_read_is_not_lost(
    app: Program, audit: Audit, redis_url: str, redis_client: redis.Redis
) -> None:
    """The audit says so, and decides nothing."""
    batch = opened(app, "ok")
    redis_client.rename("queue:default", "queue:billing")
    redis_client.sadd("queues", "billing")
    may = ("%RW~sidekiq_py:*", "%RW~queue:default", "~queues", "~stat:*", "~processes", "~retry", "~schedule", "~dead")
    redis_client.acl_setuser("clerk", enabled=True, passwords=["+pw"], commands=["+@all"], keys=[])
    redis_client.execute_command("ACL", "SETUSER", "clerk", "resetkeys", *may)
    restricted = Pool(RedisSettings(redis_url.replace("redis://", "redis://clerk:pw@")))
    try:
        for _ in range(3):
            with pytest.raises(RedisReplyError, match="NOPERM"):
                audit.run(restricted)
    finally:
        restricted.close()
        redis_client.acl_deluser("clerk")

    assert batch.status().lost == 0


def test_a_lost_job_that_turns_up_is_counted(app: Program, pool: Pool, audit: Audit) -> None:
    """Somebody had kept it in another place."""
    batch = opened(app, "ok")
    raw = app.client.rpop("queue:default")
    audit.run(pool)
    audit.run(pool)
    assert batch.status().lost == 1

    app.client.lpush("queue:default", raw)
    with sidekiq.embed(concurrency=1):
        status = batch.wait(10, until="success")

    assert (status.lost, status.pending) == (0, 0)


def test_jobs_that_stand_somewhere_are_not_lost(app: Program, pool: Pool, audit: Audit) -> None:
    """Queued, scheduled, waiting for a retry, running."""
    looks: list[int] = []

    def look() -> None:
        audit.run(pool)
        audit._next_looks.clear()
        audit.run(pool)
        looks.append(batch.status().lost)

    app.deeds["look"] = look
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.set(queue="unserved").perform_async("queued")
        app.deed.perform_in(3600, "later")
        app.deed.perform_async("fail")
        app.deed.perform_async("look")
    with sidekiq.embed(concurrency=1):
        eventually(lambda: looks)

    assert looks == [0]
    assert batch.status().lost == 0


def test_a_retry_that_was_deleted_elsewhere_is_lost(app: Program, pool: Pool, audit: Audit, worker: Any) -> None:
    """As by Ruby's Web UI."""
    batch = opened(app, "fail", "ok")
    batch.wait(60)
    app.wait_until_idle()
    app.client.delete("retry")

    audit.run(pool)
    audit.run(pool)

    status = batch.status()
    assert (status.lost, status.failures) == (1, 0)


def test_a_batch_that_has_moved_is_left_alone(app: Program, pool: Pool) -> None:
    """Within ten minutes, or between two looks; so is one that somebody may still add to."""
    batch = opened(app, "ok")
    app.client.delete("queue:default")
    usual, quick = Audit(), Audit(quiet_seconds=-1)
    usual.run(pool)
    usual.run(pool)
    quick.run(pool)
    app.client.hset(f"sidekiq_py:batch:{batch.bid}", "changed_at", "5")
    quick.run(pool)
    assert batch.status().lost == 0

    with Batch.find(batch.bid).jobs():
        quick.run(pool)
        quick.run(pool)
        assert batch.status().lost == 0


def test_numbers_that_were_reserved_and_not_used_are_no_members(app: Program, pool: Pool, audit: Audit) -> None:
    """Blocks are larger than what is pushed."""
    batch = opened(app, "ok")
    for _ in range(3):
        with Batch.find(batch.bid).jobs():
            app.deed.perform_async("ok")
    app.client.delete("queue:default")

    audit.run(pool)
    audit.run(pool)

    assert batch.status().lost == 4


def test_a_callback_whose_queue_was_no_list_goes_out_later(app: Program, pool: Pool, audit: Audit) -> None:
    """Somebody else had written to the key."""
    batch = sidekiq.Batch(callback_queue="broken")
    batch.on("success", app.callback, 1)
    app.client.set("queue:broken", "x")
    with batch.jobs():
        pass
    assert batch.status().success
    audit.run(pool)
    app.client.delete("queue:broken")

    audit.run(pool)
    audit.run(pool)

    [job] = app.waiting("broken")
    assert job["args"] == [batch.bid, "success", 1]


def test_a_batch_that_is_deleted_while_it_is_checked_is_no_damage(
    app: Program, pool: Pool, audit: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    """The log must not say that another program has written to its keys."""
    batch = opened(app, "ok")
    batch.delete()

    with audit._alone(batch.bid):
        steps.call(pool, "lose", batch.bid, b"", 0)

    assert caplog.messages == []


def test_a_parent_no_longer_waits_for_a_child_that_has_expired(
    app: Program, pool: Pool, audit: Audit, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else would tell it; its other children are waited for."""
    parent, expired, other = (sidekiq.Batch().on("success", app.callback) for _ in range(3))
    with parent.jobs():
        with expired.jobs():
            app.deed.perform_in(3600, "later")
        with other.jobs():
            later = app.deed.perform_in(3600, "later")
    app.client.delete(*app.client.keys(f"sidekiq_py:batch:{expired.bid}*"))

    audit.run(pool)
    audit.run(pool)
    before = parent.status()
    assert (before.complete, before.children) == (False, 2)
    [entry] = [entry for entry in ScheduledSet() if entry.jid == later]
    entry.add_to_queue()

    parent.wait(10, until="success")
    app.wait_until_idle()
    assert app.events(parent.bid) == ["success"]
    assert [record.message for record in caplog.records if "no longer waits for 1 of its children" in record.message]


def test_what_has_expired_is_struck_off_the_lists(app: Program, pool: Pool, audit: Audit) -> None:
    """Redis forgets the batch by itself, and not its place in lists."""
    batch = opened(app)
    batch.invalidate()
    for key in app.client.keys(f"sidekiq_py:batch:{batch.bid}*"):
        app.client.delete(key)

    audit.run(pool)

    assert app.client.keys("sidekiq_py:batches*") == []
