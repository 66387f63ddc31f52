"""Tracked batches: a row for each job."""

import asyncio
import json
import time
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.active_job import active_job, forget_active_jobs, perform_later
from sidekiq_py.api import Queue
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.changes import Listener
from sidekiq_py.extensions.batches.errors import BatchGoneError
from sidekiq_py.extensions.batches.rows import Row
from sidekiq_py.redaction import Redaction
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.extensions.batches.conftest import Program
from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


def counted(batch: Batch) -> dict[str, int]:
    """The rows by their states, without those in which there are none."""
    return {state: count for state, count in batch.rows.counts().items() if count}


def only(batch: Batch, state: Any) -> Row:
    """The one row in this state."""
    [row] = batch.rows.page(state).rows
    return row


def bad_input() -> None:
    """What a job does whose input is bad."""
    raise sidekiq.JobFailed("row 3 has no e-mail")


def test_each_state_is_told_apart(app: Program, worker: Any) -> None:
    """Finished, bad input, an error that is retried, and death, with messages."""
    app.deeds["bad"] = bad_input
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok", 1)
        app.deed.perform_async("bad")
        app.deed.perform_async("fail")
        app.once.perform_async("fail")
        app.deed.perform_in(3600, "late")

    eventually(lambda: counted(batch) == {"enqueued": 1, "finished": 1, "failed": 1, "error": 1, "dead": 1})

    finished = only(batch, "finished")
    assert (finished.number, finished.klass, finished.args, finished.queue) == (0, "Deed", ["ok", 1], "default")
    assert finished.attempts == 1
    assert finished.error is None
    assert finished.enqueued_at <= finished.started_at <= finished.ended_at
    failed, errored = only(batch, "failed"), only(batch, "error")
    assert failed.error["error_message"] == "row 3 has no e-mail"
    assert (errored.error["error_class"], errored.error["error_message"]) == ("ValueError", "no e-mail")
    assert only(batch, "enqueued").scheduled_at is not None
    status = batch.status()
    assert status.jobs is not None
    assert json.loads(status.as_json())["jobs"]["failed"] == 1


def test_a_job_is_working_while_it_runs(app: Program, worker: Any) -> None:
    """Its row says so, and how far it is."""
    seen: list[Any] = []

    def look() -> None:
        job = sidekiq.current_job()
        assert job is not None
        job.progress(at=3, total=4, message="three\nof four")
        seen.append(only(job.batch, "working"))

    app.deeds["look"] = look
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("look")

    batch.wait(10, until="success")

    [row] = seen
    assert (row.at, row.total, row.percent, row.message) == (3.0, 4.0, 75, "three\nof four")
    assert row.started_at is not None
    assert row.ended_at is None
    assert only(batch, "finished").message == "three\nof four"


def test_what_a_job_says_last_is_written_with_its_end(app: Program, worker: Any) -> None:
    """A job that says much in a moment writes little, and always the last."""

    def say() -> None:
        for at in range(1000):
            sidekiq.current_job().progress(at=at + 1, total=1000, message=f"row {at + 1}")

    app.deeds["say"] = say
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("say")

    batch.wait(10, until="success")

    row = only(batch, "finished")
    assert (row.percent, row.message) == (100, "row 1000")
    # 0.29 * 100 is a little less than 29.
    assert row._replace(at=29.0, total=100.0).percent == 29


def test_rows_come_page_by_page(app: Program) -> None:
    """By the number of the last one seen, in one state or in all."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok", number] for number in range(2500)])

    first = batch.rows.page("enqueued", limit=1000)
    second = batch.rows.page("enqueued", after=first.next, limit=1000)
    third = batch.rows.page("enqueued", after=second.next, limit=1000)

    assert [row.args[1] for page in (first, second, third) for row in page.rows] == list(range(2500))
    assert third.next is None
    assert [row.number for row in batch.rows] == [row.number for page in (first, second, third) for row in page.rows]
    assert batch.rows.page(after=2497, limit=2).next is None
    assert batch.rows.page(after=2496, limit=2).next == 2498
    assert batch.rows.get(2499) is not None
    assert batch.rows.get(2500) is None


def test_arguments_can_be_redacted(app: Program) -> None:
    """Secrets are hidden unless the caller says otherwise; long arguments are left out."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async({"password": "x", "name": "Ada"}, 5)
        app.deed.perform_async("y" * 5000)

    short, long = batch.rows.page().rows

    assert short.args == [{"password": "[redacted]", "name": "Ada"}, 5]
    assert long.args is None
    [row, _] = batch.rows.page(redaction=Redaction(jobs={"Deed": ["args[1]"]})).rows
    assert row.args == [{"password": "[redacted]", "name": "Ada"}, "[redacted]"]
    [row, _] = batch.rows.page(redaction=Redaction.none()).rows
    assert row.args == [{"password": "x", "name": "Ada"}, 5]


def test_failed_rows_are_retried(app: Program, worker: Any) -> None:
    """They wait again, then run, and what they raised is forgotten with their success."""
    app.deeds["bad"] = bad_input
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        for _ in range(3):
            app.deed.perform_async("bad")
    eventually(lambda: counted(batch) == {"failed": 3})
    del app.deeds["bad"]

    assert batch.retry_failed() == 3

    batch.wait(10, until="success")
    assert counted(batch) == {"finished": 3}
    row = batch.rows.page().rows[0]
    assert (row.attempts, row.error) == (2, None)


def test_the_rows_of_many_retried_jobs_change_in_one_step(app: Program, redis_client: redis.Redis) -> None:
    """Subscribers get one message, and Redis one script instead of one for each row."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 50)
    [queue] = redis_client.keys("queue:*")
    redis_client.zadd("dead", dict.fromkeys(redis_client.lrange(queue, 0, -1), 1_700_000_000))
    redis_client.delete(queue)

    with redis_client.pubsub() as listener:
        listener.subscribe(steps.channel(batch.bid))
        messages = (message["data"] for message in listener.listen() if message["type"] == "message")
        assert batch.retry_failed() == 50
        redis_client.publish(steps.channel(batch.bid), "the end")
        change, end = islice(messages, 2)

    assert (json.loads(change)["state"], sorted(json.loads(change)["numbers"])) == ("enqueued", [*range(50)])
    assert end == b"the end"


def batch_with_a_failed_job(app: Program) -> sidekiq.Batch:
    """Its only job is in the dead set, and no worker runs."""
    app.deeds["bad"] = bad_input
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("bad")
    with sidekiq.embed(concurrency=1):
        eventually(lambda: counted(batch) == {"failed": 1})
    return batch


def test_a_row_that_is_put_back_waits_again(app: Program) -> None:
    """Until a worker takes it."""
    batch = batch_with_a_failed_job(app)

    batch.retry_failed()

    row = only(batch, "enqueued")
    assert (row.attempts, row.started_at, row.ended_at) == (1, None, None)


def test_failed_jobs_whose_rows_have_expired_are_retried(app: Program, redis_client: redis.Redis) -> None:
    """A batch's keys last for 30 days, and a dead job for half a year."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 2)
    [queue] = redis_client.keys("queue:*")
    redis_client.zadd("dead", dict.fromkeys(redis_client.lrange(queue, 0, -1), 1_700_000_000))
    redis_client.delete(queue, *redis_client.keys(f"{steps.key(batch.bid)}*"))

    assert batch.retry_failed() == 2

    assert (redis_client.llen(queue), redis_client.zcard("dead")) == (2, 0)


def test_a_job_that_starts_late_in_a_frozen_process_changes_no_final_row(
    app: Program, worker: Any, redis_client: redis.Redis
) -> None:
    """It has been run elsewhere meanwhile; its own end is not counted, and would never come to the row."""
    from sidekiq_py.client import sync_client
    from sidekiq_py.extensions.batches import steps

    app.deeds["bad"] = bad_input
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
        app.deed.perform_async("bad")
    eventually(lambda: counted(batch) == {"finished": 1, "failed": 1})

    for number in (0, 1):
        steps.call(sync_client.current().pool, "working", batch.bid, number, "0")

    assert counted(batch) == {"finished": 1, "failed": 1}


def test_a_dead_job_that_is_retried_is_working_again(app: Program) -> None:
    """Also where Ruby's Web UI has put it back, which writes no row: its payload shows that it failed before."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    pool = sync_client.current().pool
    steps.call(pool, "ends", batch.bid, "dead", 0, "jid", "{}")

    steps.call(pool, "working", batch.bid, 0, "1")

    assert counted(batch) == {"working": 1}


def test_a_dead_job_that_is_deleted_after_its_retry_is_dead_again(app: Program) -> None:
    """It still counts as dead, and its row must not say for ever that it waits."""
    batch = batch_with_a_failed_job(app)
    batch.retry_failed()
    assert counted(batch) == {"enqueued": 1}

    [job] = Queue("default")
    job.delete()

    assert counted(batch) == {"dead": 1}
    assert batch.status().dead == 1


def test_a_dead_job_that_is_deleted_while_its_retry_is_interrupted_is_dead_again(app: Program) -> None:
    """An interrupted job waits, too."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    pool = sync_client.current().pool
    steps.call(pool, "ends", batch.bid, "dead", 0, "jid", "{}")
    steps.call(pool, "working", batch.bid, 0, "1")
    steps.call(pool, "ends", batch.bid, "attempt", 0, "jid")
    assert counted(batch) == {"interrupted": 1}

    steps.call(pool, "ends", batch.bid, "deleted", 0, "jid")

    assert counted(batch) == {"dead": 1}


def test_jobs_of_an_invalid_batch_leave_as_invalidated(app: Program) -> None:
    """Without a run."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    batch.invalidate()

    with sidekiq.embed(concurrency=1):
        batch.wait(60)

    row = only(batch, "invalidated")
    assert row.attempts == 0


def test_callbacks_of_a_child_have_rows(app: Program, worker: Any) -> None:
    """They are members of the parent; the child itself keeps none."""
    batch, child = sidekiq.Batch(track=True), sidekiq.Batch()
    child.on("success", app.callback)
    with batch.jobs():
        app.deed.perform_async("ok")
        with child.jobs():
            app.deed.perform_async("ok")

    batch.wait(10, until="success")

    assert counted(batch) == {"finished": 2}
    assert counted(child) == {}
    assert child.status().jobs is None
    row = batch.rows.page().rows[-1]
    assert (row.callback, row.klass, row.attempts) == ("success", None, 1)
    assert app.calls == [("success", child.bid, None)]


def test_jobs_that_are_added_from_within_a_job_have_rows(app: Program, worker: Any) -> None:
    """Whoever adds learns that the batch is tracked."""

    def add() -> None:
        with sidekiq.current_job().batch.jobs():
            app.deed.perform_async("ok", "added")

    app.deeds["add"] = add
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("add")

    batch.wait(10, until="success")

    assert [row.args for row in batch.rows] == [["add"], ["ok", "added"]]


def test_rows_expire_with_their_batch_before_any_job_has_run(app: Program, redis_client: redis.Redis) -> None:
    """If no worker ever runs the jobs, a batch is gone after 30 days; its rows must not stay behind forever."""
    batch = sidekiq.Batch(track=True)

    with batch.jobs():
        app.deed.perform_async("ok")

    keys = redis_client.keys(f"{steps.key(batch.bid)}*")
    assert len(keys) == 6
    assert {round(redis_client.ttl(key) / 86400) for key in keys} == {30}


def test_removed_members_have_no_row_and_all_keys_expire(app: Program, redis_client: redis.Redis) -> None:
    """With the batch."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        jids = app.deed.perform_bulk([["ok"], ["ok"]])

    batch.remove(jids[:1])

    assert [row.jid for row in batch.rows] == jids[1:]
    assert [redis_client.hlen(f"sidekiq_py:batch:{batch.bid}:{name}") for name in ("jobs", "tracks")] == [1, 1]
    keys = redis_client.keys(f"sidekiq_py:batch:{batch.bid}*")
    assert {f"sidekiq_py:batch:{batch.bid}:{name}".encode() for name in ("jobs", "tracks", "states")} <= set(keys)
    assert all(redis_client.ttl(key) > 0 for key in keys)
    batch.delete()
    assert redis_client.keys(f"sidekiq_py:batch:{batch.bid}*") == []


def test_changes_are_heard(app: Program) -> None:
    """The first one comes at once; what happens in a moment comes as one."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 50)
    changes = batch.changes(every=0.05)
    first = next(changes)

    with sidekiq.embed(concurrency=2):
        batch.wait(10, until="success")
        states: dict[int, str] = {}
        events: list[str] = []
        for change in changes:
            states |= change.states
            events += change.events
            if "success" in events:
                break
    changes.close()

    assert first.is_fresh
    assert states == dict.fromkeys(range(50), "finished")
    assert events == ["complete", "success"]


@pytest.mark.parametrize(
    "text", [b"", b"nonsense", b"\xff", b"7", b"[]", b'{"numbers": 5}', b'{"numbers": [1]}', b"[" * 5000]
)
def test_what_another_program_publishes_ends_no_changes(app: Program, redis_client: redis.Redis, text: bytes) -> None:
    """It is passed over."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    changes = batch.changes(every=0.05, idle=0.05)
    next(changes)

    assert redis_client.publish(steps.channel(batch.bid), text) == 1
    with sidekiq.embed(concurrency=1):
        events: list[str] = []
        while "success" not in events:
            events += next(changes).events
    changes.close()

    assert events == ["complete", "success"]


def test_changes_are_heard_by_async_programs(app: Program) -> None:
    """An empty change comes when nothing happens, and the last wait ends with the program."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")

    async def listen() -> list[Any]:
        received = []
        changes = batch.achanges(every=0.01, idle=0.05)
        async for change in changes:
            received.append(change)
            if len(received) == 2:
                with batch.jobs():
                    app.deed.perform_async("ok")
            if change.states:
                break
        await changes.aclose()
        return received

    received = asyncio.run(listen())

    assert (received[0].is_fresh, bool(received[1])) == (True, False)
    assert list(received[-1].states.values()) == ["enqueued"]


def test_a_listener_that_lost_its_connection_reads_anew(app: Program, redis_client: redis.Redis) -> None:
    """What happened meanwhile was not told; and it ends with the batch."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    changes = batch.changes(every=0.01, idle=0.05)
    assert next(changes).is_fresh

    redis_client.client_kill_filter(_type="pubsub")

    assert next(change for change in changes if change).is_fresh
    with batch.jobs():
        app.deed.perform_async("ok")
    assert list(next(change for change in changes if change).states.values()) == ["enqueued"]
    batch.delete()
    with pytest.raises(BatchGoneError):
        list(changes)


def test_a_listener_whose_connection_is_cut_once_it_is_subscribed_waits_longer_each_time(
    app: Program, redis_server: RedisServer
) -> None:
    """The way through a proxy may be broken for hours, and after each fresh change a program reads all rows."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    with CuttingProxy(redis_server.port) as proxy, closing(Pool(RedisSettings(proxy.url))) as pool:
        proxy.cut(b"SUBSCRIBE", "after reply", times=5)
        changes = Listener(pool, batch.bid, every=0.01, idle=60).changes()
        begun = time.monotonic()
        for _ in range(5):
            assert next(change for change in changes if change).is_fresh

        assert time.monotonic() - begun >= 0.1 + 0.2 + 0.4 + 0.8
        changes.close()


def test_a_listener_whose_connection_is_cut_whenever_it_is_idle_connects_again_at_once(
    app: Program, redis_client: redis.Redis
) -> None:
    """Some proxies cut what is idle for some seconds; changes are not seen in the pause before the next try."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    listener = Listener(sync_client.current().pool, batch.bid, every=0.01, idle=60)
    first_pause, changes = listener._pause, listener.changes()
    for _ in range(2):
        assert next(changes).is_fresh
        assert listener._next() is None
        assert listener._pause == first_pause
        redis_client.client_kill_filter(_type="pubsub")

    changes.close()


def test_rows_that_somebody_has_damaged_keep_no_job_from_ending(app: Program, redis_client: redis.Redis) -> None:
    """What can be read of them is shown."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 3)
    redis_client.hset(f"sidekiq_py:batch:{batch.bid}:tracks", mapping={0: "", 1: "x - - -"})
    redis_client.hset(f"sidekiq_py:batch:{batch.bid}:jobs", 2, "[broken")
    assert [row.attempts for row in batch.rows] == [0, 0, 0]

    with sidekiq.embed(concurrency=1):
        batch.wait(10, until="success")

    assert [(row.state, row.attempts, row.klass) for row in batch.rows] == [
        ("finished", 1, "Deed"),
        ("finished", 1, "Deed"),
        ("finished", 1, None),
    ]


def test_an_active_job_that_enqueues_itself_again_has_rows(app: Program, worker: Any) -> None:
    """One for each jid."""
    forget_active_jobs()
    runs: list[int] = []

    @active_job("FlakyJob", retry_on={ZeroDivisionError: {"wait": 0, "attempts": 3, "jitter": 0}})
    def flaky(name: str) -> None:
        runs.append(1)
        if len(runs) < 2:
            raise ZeroDivisionError

    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        perform_later("FlakyJob", "Ada")

    batch.wait(15, until="success")
    forget_active_jobs()

    assert [(row.klass, row.args, row.state) for row in batch.rows] == [("FlakyJob", ["Ada"], "finished")] * 2


def test_a_bad_question_is_an_error(app: Program) -> None:
    """With what to ask instead."""
    batch = sidekiq.Batch(track=True)
    with pytest.raises(sidekiq.SidekiqError, match="not a state of a job; use one of enqueued, working"):
        batch.rows.page("gone")  # type: ignore[arg-type]
    with pytest.raises(sidekiq.SidekiqError, match="limit is 0"):
        batch.rows.page(limit=0)
    with pytest.raises(sidekiq.SidekiqError, match="limit is '5'; a page has 1 to"):
        batch.rows.page(limit="5")  # type: ignore[arg-type]
    with pytest.raises(sidekiq.SidekiqError, match="after is '5'; give the number of the last row seen"):
        batch.rows.page(after="5")  # type: ignore[arg-type]


def test_progress_keeps_what_it_does_not_mention(app: Program, redis_client: redis.Redis) -> None:
    """A row whose text another program has overwritten is left alone."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 2)
    pool = sync_client.current().pool
    for number in (0, 1):
        steps.call(pool, "working", batch.bid, number, "")
    steps.call(pool, "said", batch.bid, 0, "3", "4", "three")

    steps.call(pool, "said", batch.bid, 0, "-", "-", "still three")
    redis_client.hset(f"{steps.key(batch.bid)}:tracks", 1, "x - - -")
    steps.call(pool, "said", batch.bid, 1, "1", "2", "lost")

    row = batch.rows.get(0)
    assert row is not None
    assert (row.at, row.total, row.message) == (3.0, 4.0, "still three")
    assert redis_client.hget(f"{steps.key(batch.bid)}:tracks", 1) == b"x - - -"


def test_a_removed_member_is_counted_in_no_state(app: Program) -> None:
    """Nor is there a row on the page of its state."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        jids = app.deed.perform_bulk([["ok"], ["ok"]])

    batch.remove(jids[:1])

    assert counted(batch) == {"enqueued": 1}
    assert [row.jid for row in batch.rows.page("enqueued").rows] == jids[1:]


def test_a_push_that_waits_for_a_commit_has_a_row(app: Program) -> None:
    """It is made outside of the block, as any other job of the batch all the same."""
    waiting: list[Any] = []
    program.push_after_commit(lambda push: waiting.append(push) is None)
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok", 1)

    waiting.pop()()

    assert counted(batch) == {"enqueued": 1}
    assert only(batch, "enqueued").args == ["ok", 1]


def test_jobs_of_a_batch_that_was_deleted_run_all_the_same(app: Program) -> None:
    """They have no row any more in which to note it."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    batch.delete()

    with sidekiq.embed(concurrency=1):
        eventually(lambda: app.runs == [("ok",)])
