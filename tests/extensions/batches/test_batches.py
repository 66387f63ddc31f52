"""Batches as programs use them, with a worker on a real Redis."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import timedelta
from itertools import takewhile
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.active_job import active_job, forget_active_jobs, perform_later
from sidekiq_py.api import Batches, BulkResult, Queue, RetrySet
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisReplyError, SidekiqError
from sidekiq_py.extensions.batches import adding, extension, steps
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.errors import BatchClosedError, BatchDoneError, BatchError, BatchGoneError
from tests.extensions.batches.conftest import Program
from tests.support.waiting import eventually
from tests.web.conftest import RoundTrips, round_trips

RoundTripsOf = Callable[[], AbstractContextManager[RoundTrips]]

__all__ = ["round_trips"]


def watched(app: Program, **options: Any) -> Batch:
    """A batch with a callback for each event."""
    batch = sidekiq.Batch(**options)
    for event in ("complete", "success", "death"):
        batch.on(event, app.callback, options.get("description"))
    return batch


def test_all_jobs_succeed(app: Program, worker: Any) -> None:
    """`complete` and `success` are enqueued once, with the options."""
    batch = watched(app, description="Import 42")
    with batch.jobs():
        for number in range(30):
            app.deed.perform_async("ok", number)

    batch.wait(10, until="success")
    app.wait_until_idle()

    assert sorted(app.calls) == [("complete", batch.bid, "Import 42"), ("success", batch.bid, "Import 42")]
    assert len(app.runs) == 30
    status = sidekiq.Batch.find(batch.bid).status()
    assert (status.total, status.pending, status.failures, status.state) == (30, 0, 0, "success")
    assert json.loads(status.as_json())["description"] == "Import 42"


def test_members_bear_the_batch_s_id_and_a_number(app: Program) -> None:
    """As the last key, so that Ruby's own keys stand as Ruby writes them."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        app.deed.perform_bulk([["ok"], ["ok"]])
    app.deed.perform_async("outside")

    *members, outside = app.waiting()

    assert [job["sidekiq_py_batch"] for job in members] == [[batch.bid, 0], [batch.bid, 1], [batch.bid, 2]]
    assert list(members[0])[-1] == "sidekiq_py_batch"
    assert "sidekiq_py_batch" not in outside


@pytest.mark.usefixtures("app")
def test_a_batch_is_not_a_block_itself() -> None:
    """`with batch:` names the block to write instead."""

    async def misuse() -> None:
        async with sidekiq.Batch():  # type: ignore[attr-defined]
            pass

    with pytest.raises(BatchError, match=r"`with batch\.jobs\(\):`"), sidekiq.Batch():  # type: ignore[attr-defined]
        pass
    with pytest.raises(BatchError, match=r"`async with batch\.jobs\(\):`"):
        asyncio.run(misuse())


def test_a_job_may_be_scheduled_for_any_time(app: Program) -> None:
    """In nanoseconds by mistake. Redis would refuse such an end of the batch after its counters are written."""
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_at(1.7e18, "ok")

    [(job, score)] = app.client.zrange("schedule", 0, -1, withscores=True)
    assert (json.loads(job)["sidekiq_py_batch"], score) == ([batch.bid, 0], 1.7e18)
    assert batch.status().total == 1
    assert app.client.ttl(f"sidekiq_py:batch:{batch.bid}") > 900 * 365 * 24 * 3600


def test_complete_comes_with_the_first_attempt_of_all(app: Program, worker: Any) -> None:
    """A job that failed and waits for its retry holds back `success` alone."""
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("ok")
        app.deed.perform_async("fail")

    status = batch.wait(60)
    app.wait_until_idle()
    assert app.events(batch.bid) == ["complete"]
    assert (status.pending, status.failures, status.dead) == (1, 1, 0)
    [failed] = status.as_dict()["members"]
    assert failed["error"]["error_message"] == "no e-mail"
    assert failed["error"]["error_class"] == "ValueError"

    del app.deeds["fail"]
    assert batch.retry_failed() == 1
    status = batch.wait(10, until="success")
    app.wait_until_idle()
    assert app.events(batch.bid) == ["complete", "success"]
    assert (status.pending, status.failures) == (0, 0)


@pytest.mark.parametrize("track", [False, True])
def test_many_failed_jobs_are_retried_a_hundred_in_a_round_trip(
    app: Program, redis_client: redis.Redis, round_trips: RoundTripsOf, track: bool
) -> None:
    """One by one, 300 jobs would take 300 round trips, and with rows 900. Jobs of other batches stay."""
    batch, other = Batch(track=track), Batch(track=track)
    for each in (batch, other):
        with each.jobs():
            app.deed.perform_bulk([["ok"]] * 300)
    [queue] = redis_client.keys("queue:*")
    redis_client.zadd("dead", dict.fromkeys(redis_client.lrange(queue, 0, -1), 1_700_000_000))
    redis_client.delete(queue)

    with round_trips() as made:
        assert batch.retry_failed() == 300

    assert made.count < 20
    assert (redis_client.llen(queue), redis_client.zcard("dead")) == (300, 300)


def test_a_job_that_fails_twice_is_counted_once(app: Program, worker: Any) -> None:
    """Its second failure changes nothing."""
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("fail")
    batch.wait(60)

    RetrySet().retry_all()
    app.wait_until_idle()

    assert app.runs == [("fail",), ("fail",)]
    assert (batch.status().failures, batch.status().pending) == (1, 1)
    assert app.events(batch.bid) == ["complete"]


def test_a_thousand_errors_of_a_batch_are_kept(app: Program) -> None:
    """A batch of a million jobs that all fail must not fill Redis. What is kept of a job is its latest error."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["ok"], ["ok"]])
    errors = f"{steps.key(batch.bid)}:errors"
    app.client.hset(errors, mapping={"1": "its first", **{f"{number}": "an error" for number in range(2, 1001)}})

    for number in (0, 1):
        steps.call(sync_client.current().pool, "ends", batch.bid, "failed", number, "jid", "its latest")

    assert (app.client.hlen(errors), app.client.hmget(errors, "0", "1")) == (1000, [None, b"its latest"])


def test_a_member_that_reports_its_progress_ends_for_its_status_too(app: Program, redis_client: redis.Redis) -> None:
    """Ruby has asked for the status by a hash, as the gem sidekiq-status does; the payload does not show it."""
    app.deeds["say"] = lambda: sidekiq.current_job().progress(at=1, total=2)  # type: ignore[union-attr]
    batch = sidekiq.Batch()
    with batch.jobs():
        jid = app.deed.perform_async("say")
    redis_client.hset(f"sidekiq:status:{jid}", mapping={"jid": jid, "status": "queued", "worker": "Deed"})

    with sidekiq.embed(concurrency=1):
        batch.wait(10, until="success")

    assert redis_client.hget(f"sidekiq:status:{jid}", "status") == b"complete"


def test_the_first_death_is_announced_once(app: Program, worker: Any) -> None:
    """A job without retries dies by its first failure."""
    batch = watched(app)
    with batch.jobs():
        app.once.perform_async("fail")
        app.once.perform_async("fail")

    status = batch.wait(60)
    app.wait_until_idle()

    assert app.events(batch.bid) == ["complete", "death"]
    assert (status.dead, status.failures) == (2, 0)
    assert len(batch.status().dead_jids) == 2


def test_a_dead_job_that_is_retried_completes_success(app: Program, worker: Any) -> None:
    """Death is not final."""
    app.deed.set(retry=0)
    batch = watched(app)
    with batch.jobs():
        app.deed.set(retry=0).perform_async("fail")
    batch.wait(60)
    app.wait_until_idle()
    assert batch.status().dead == 1

    del app.deeds["fail"]
    assert batch.retry_failed() == 1

    status = batch.wait(10, until="success")
    assert (status.dead, status.pending) == (0, 0)


def test_a_job_that_is_discarded_counts_as_dead(app: Program, worker: Any) -> None:
    """Nothing is left of it that could still succeed."""

    @app.deed.retry_in
    def discard(count: int, error: BaseException, payload: Any) -> str:
        return "discard"

    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("fail")

    status = batch.wait(60)
    app.wait_until_idle()

    assert app.events(batch.bid) == ["complete", "death"]
    assert (status.dead, status.failures, status.pending) == (1, 0, 1)
    assert (app.client.zcard("retry"), app.client.zcard("dead")) == (0, 0)


def test_a_success_is_final(app: Program) -> None:
    """
    The same job comes again, as after a kill, and fails: neither a counter nor a callback moves. The callbacks run in
    the order in which they were enqueued, as the worker has one thread.
    """
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("twice")
    [raw] = app.client.lrange("queue:default", 0, -1)

    with sidekiq.embed(concurrency=1, buffer_seconds=0.01):
        batch.wait(60, until="success")
        eventually(lambda: len(app.events(batch.bid)) == 2)
        app.deeds["twice"] = app.deeds["fail"]
        app.client.lpush("queue:default", raw)
        eventually(lambda: app.client.zcard("retry") == 1)

    status = batch.status()
    assert app.runs == [("twice",), ("twice",)]
    assert (status.pending, status.failures, status.success) == (0, 0, True)
    assert [event for event, _, _ in app.calls] == ["complete", "success"]


def test_a_batch_whose_jobs_are_still_to_be_added_has_made_no_progress(app: Program) -> None:
    """A page that reads it between the opening of its block and the first push would show a full bar."""
    parent, child = sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs():
        assert parent.status().progress == 0.0
        with child.jobs():
            app.deed.perform_async("ok")
    assert parent.status().progress == 0.0

    empty = sidekiq.Batch()
    with empty.jobs():
        pass
    assert empty.status().progress == 1.0


def test_an_empty_batch_calls_back_at_once(app: Program, worker: Any) -> None:
    """There is nothing to wait for."""
    batch = watched(app)

    with batch.jobs():
        pass

    batch.wait(10, until="success")
    app.wait_until_idle()
    assert app.events(batch.bid) == ["complete", "success"]


def test_an_exception_leaves_the_batch_open(app: Program, worker: Any) -> None:
    """Nobody can say that all its jobs are there; closed by hand it goes on."""
    batch = watched(app)

    def push_and_fail() -> None:
        with batch.jobs():
            app.deed.perform_async("ok")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        push_and_fail()

    app.wait_until_idle()
    status = batch.status()
    assert (status.state, status.pending, len(status.openers)) == ("open", 0, 1)
    assert app.calls == []

    assert batch.close() == 1
    batch.wait(10, until="success")
    app.wait_until_idle()
    assert app.events(batch.bid) == ["complete", "success"]


def test_a_member_adds_to_its_batch(app: Program, worker: Any) -> None:
    """The batch waits for what a running job adds."""

    def add() -> None:
        batch = sidekiq.current_job().batch
        assert batch is not None
        with batch.jobs():
            app.deed.perform_async("added")

    app.deeds["add"] = add
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("add")

    status = batch.wait(10, until="success")
    app.wait_until_idle()
    assert status.total == 2
    assert ("added",) in app.runs
    assert status.openers == []
    assert app.events(batch.bid) == ["complete", "success"]


def test_a_member_that_adds_and_then_fails_closes_its_block(app: Program, worker: Any) -> None:
    """What it was adding it adds no more with its attempt: the batch does not stay open for it."""

    def add_and_fail() -> None:
        with sidekiq.current_job().batch.jobs():
            app.deed.perform_async("added")
            raise ValueError("in the block")

    app.deeds["add"] = add_and_fail
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("add")

    status = batch.wait(60)
    assert (status.total, status.pending, status.failures, status.openers) == (2, 1, 1, [])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_in_the_block_adds_jobs_of_its_own(app: Program) -> None:
    """Its slices are numbered apart from its parent's, which would else pass for slices that came before."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("before")
        child = os.fork()
        if child == 0:
            try:
                app.deed.perform_bulk([["child", number] for number in range(5)])
                app.deed.perform_async("child", 5)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        app.deed.perform_bulk([["parent", number] for number in range(5)])
        app.deed.perform_async("parent", 5)

    wanted = [["before"], *[[who, number] for who in ("child", "parent") for number in range(6)]]
    assert [payload["args"] for payload in app.waiting()] == wanted
    assert len({payload["sidekiq_py_batch"][1] for payload in app.waiting()}) == batch.status().total == 13


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_while_other_threads_add_waits_for_none_of_them(app: Program) -> None:
    """Those threads do not exist in the child, and would never release a lock."""
    batch = sidekiq.Batch()
    has_ended = threading.Event()
    with batch.jobs():
        adds = adding.current()
        assert adds is not None

        def add() -> None:
            while not has_ended.is_set():
                adds.place(1)

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    try:
                        adds.place(1)
                    finally:
                        os._exit(0)
                try:
                    eventually(lambda child=child: os.waitpid(child, os.WNOHANG) != (0, 0))
                except BaseException:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    raise
        finally:
            has_ended.set()
            for thread in threads:
                thread.join()


def test_a_batch_is_opened_again(app: Program) -> None:
    """By anybody who has its id, until it has succeeded."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")

    with sidekiq.Batch.find(batch.bid).jobs():
        app.deed.perform_async("ok")

    assert batch.status().total == 2


def test_adding_after_success_is_an_error(app: Program, worker: Any) -> None:
    """Its callbacks are enqueued and could not come again."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    batch.wait(10, until="success")

    with pytest.raises(BatchDoneError, match="make a new batch"), batch.jobs():
        pass


def test_a_push_behind_the_block_is_no_member(app: Program) -> None:
    """Also not where a task that was started in the block pushes later: that is an error."""
    batch = sidekiq.Batch()

    async def push_late(gate: asyncio.Event) -> None:
        await gate.wait()
        await app.deed.aperform_async("late")

    async def go() -> None:
        gate = asyncio.Event()
        async with batch.jobs():
            await app.deed.aperform_async("ok")
            await app.deed.aperform_bulk([["ok"]])
            late = asyncio.create_task(push_late(gate))
        gate.set()
        await late

    with pytest.raises(BatchClosedError):
        asyncio.run(go())

    assert batch.status().total == 2
    assert len(app.waiting()) == 2


def test_an_async_block_of_many_tasks(app: Program, worker: Any) -> None:
    """Each task numbers its own jobs."""
    batch = watched(app)

    async def go() -> None:
        async with batch.jobs():
            await asyncio.gather(*[app.deed.aperform_async("ok", number) for number in range(50)])

    asyncio.run(go())

    status = batch.wait(10, until="success")
    assert status.total == 50
    assert len({json.dumps(run) for run in app.runs}) == 50


def test_a_push_to_another_redis_in_the_block_raises(app: Program, new_redis_server: Any) -> None:
    """The batch could not count it."""
    other = sidekiq.Client(new_redis_server().url)
    with pytest.raises(BatchError, match="another Redis"), sidekiq.Batch().jobs():
        other.push({"class": "Deed", "args": []})
    other.close()


def test_another_spelling_of_the_url_is_the_same_redis(app: Program, redis_url: str) -> None:
    """A Celery app writes `redis://host/0` where `REDIS_URL` has `redis://host`, and its socket gets a `?db=0`."""
    same = sidekiq.Client(f"{redis_url}?db=0")
    batch = sidekiq.Batch()
    with batch.jobs():
        same.push({"class": "Deed", "args": []})
    same.close()

    assert batch.status().total == 1


def test_children_hold_back_their_parent(app: Program, worker: Any) -> None:
    """With the jobs that their callbacks are."""
    parent, child = watched(app), watched(app)
    with parent.jobs():
        app.deed.perform_async("ok")
        with child.jobs():
            app.deed.perform_async("fail")

    child.wait(60)
    status = parent.wait(60)
    app.wait_until_idle()
    assert (status.total, status.children) == (2, 1)
    assert app.events(parent.bid) == ["complete"]
    assert child.status().parent_bid == parent.bid

    del app.deeds["fail"]
    child.retry_failed()
    parent.wait(10, until="success")
    app.wait_until_idle()
    assert [(event, bid) for event, bid, _ in app.calls] == [
        ("complete", child.bid),
        ("complete", parent.bid),
        ("success", child.bid),
        ("success", parent.bid),
    ]


def test_a_member_that_fails_in_a_new_batch_s_block_leaves_a_child_open_that_its_parent_waits_for(
    app: Program, worker: Any
) -> None:
    """Its next run opens another child, and nobody can say what the first one lacks. Deleted, it holds nothing back."""
    opened: list[Batch] = []

    def open_the_next_step() -> None:
        opened.append(sidekiq.Batch())
        with sidekiq.current_job().batch.jobs(), opened[-1].jobs():
            if len(opened) == 1:
                raise ZeroDivisionError
            app.deed.perform_async("step 2")

    app.deeds["next"] = open_the_next_step
    parent = watched(app)
    with parent.jobs():
        app.deed.perform_async("next")
    eventually(lambda: parent.status().failures == 1)
    assert parent.retry_failed() == 1
    eventually(lambda: ("step 2",) in app.runs)
    app.wait_until_idle()

    assert opened[1].status().state == "success"
    assert (parent.status().state, parent.status().pending) == ("running", 0)
    assert [batch.bid for batch in Batches().in_state("open")] == [opened[0].bid]

    opened[0].delete()
    parent.wait(10, until="success")
    app.wait_until_idle()
    assert app.events(parent.bid) == ["complete", "success"]


def test_the_complete_callback_of_a_child_holds_back_the_parent_s_complete(app: Program, worker: Any) -> None:
    """It is a member of the parent, which may add to it."""

    def add_to_parent() -> None:
        with sidekiq.current_job().batch.jobs():
            app.deed.perform_async("step 2")

    app.deeds["next"] = add_to_parent
    parent = watched(app)
    child = sidekiq.Batch()
    child.on("success", app.callback, "next")
    with parent.jobs(), child.jobs():
        app.deed.perform_async("step 1")

    parent.wait(10, until="success")
    app.wait_until_idle()

    assert app.runs == [("step 1",), ("step 2",)]
    assert parent.status().total == 2
    assert app.events(parent.bid) == ["complete", "success"]


def test_a_child_that_ends_while_its_parent_is_open_holds_its_own_end_alone(app: Program, worker: Any) -> None:
    """Its callbacks come, and its death reaches the parent, which completes when it is closed."""
    parent, child = watched(app), watched(app)
    with parent.jobs():
        with child.jobs():
            app.once.perform_async("fail")
        eventually(lambda: app.events(child.bid) == ["complete", "death"])
        eventually(lambda: app.events(parent.bid) == ["death"])
        app.wait_until_idle()
        assert not parent.status().complete

    eventually(lambda: app.events(parent.bid) == ["complete", "death"])


def test_a_callback_of_a_child_that_dies_is_a_death_of_the_parent(app: Program, worker: Any) -> None:
    """The child has succeeded all the same."""

    @sidekiq.job(name="Dying", retry=False)
    def dying(bid: str, event: str, options: Any) -> None:
        raise ValueError("no printer")

    parent, child = watched(app), sidekiq.Batch().on("success", dying)
    with parent.jobs(), child.jobs():
        app.deed.perform_async("ok")

    child.wait(10, until="success")
    eventually(lambda: app.events(parent.bid) == ["complete", "death"])
    assert not parent.status().success


def test_two_programs_add_to_one_batch_at_a_time(app: Program, worker: Any, redis_url: str) -> None:
    """Each numbers its own slices; all jobs are counted once."""
    batch = watched(app)
    code = (
        "import sidekiq_py as sidekiq\n"
        f"sidekiq.configure(redis_url={redis_url!r}, sidekiq_version='7')\n"
        "deed = sidekiq.ruby_job('Deed')\n"
        f"with sidekiq.Batch.find({batch.bid!r}).jobs():\n"
        "    for number in range(20):\n"
        "        deed.perform_async('other', number)\n"
        "    deed.perform_bulk([['other', number] for number in range(20, 400)], batch_size=100)\n"
    )
    with batch.jobs():
        others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
        for number in range(200):
            app.deed.perform_async("own", number)
        assert [other.wait(60) for other in others] == [0, 0]

    status = batch.wait(30, until="success")
    app.wait_until_idle()
    assert (status.total, len(app.runs)) == (1000, 1000)
    assert app.events(batch.bid) == ["complete", "success"]


def test_a_death_reaches_the_ancestors_once_each(app: Program, worker: Any) -> None:
    """However many jobs die below."""
    batches = [watched(app) for _ in range(3)]
    with batches[0].jobs(), batches[1].jobs(), batches[2].jobs():
        app.once.perform_async("fail")
        app.once.perform_async("fail")

    batches[0].wait(10, until="death")
    app.wait_until_idle()

    assert [app.events(batch.bid).count("death") for batch in batches] == [1, 1, 1]


def test_invalidated_jobs_leave_without_a_run(app: Program) -> None:
    """`complete` follows, `success` does not; children are concerned, too."""
    parent, child = watched(app), watched(app)
    with parent.jobs():
        app.deed.perform_async("ok")
        with child.jobs():
            app.deed.perform_async("ok")
    assert parent.is_valid

    assert parent.invalidate() == 2
    with sidekiq.embed(concurrency=1):
        status = parent.wait(60)
        app.wait_until_idle()

    assert app.runs == []
    assert not child.is_valid
    assert (status.invalidated, status.pending) == (1, 1)
    assert app.events(parent.bid) == app.events(child.bid) == ["complete"]


def test_of_many_invalidated_batches_a_process_reads_those_that_are_new(
    app: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay in the set for weeks, and each process looks every second. One that is deleted is valid again."""
    monkeypatch.setattr(extension, "_FRESH_SECONDS", -1)
    first = {f"batch {number}": number for number in range(5000)}
    app.client.zadd(steps.INVALID, first)
    copy = extension._InvalidBatches()
    assert copy.bids() == first.keys()

    app.client.zadd(steps.INVALID, {"in the same second": 4999, "later": 5000})
    sent = app.client.info("stats")["total_net_output_bytes"]
    assert copy.bids() == {*first, "in the same second", "later"}
    assert app.client.info("stats")["total_net_output_bytes"] - sent < 20_000

    app.client.zrem(steps.INVALID, "batch 7", "later")
    assert copy.bids() == {*first, "in the same second"} - {"batch 7"}
    app.client.delete(steps.INVALID)
    assert copy.bids() == frozenset()


def test_a_running_job_sees_that_its_batch_was_invalidated(app: Program, worker: Any) -> None:
    """It may leave early."""
    batch = sidekiq.Batch()

    def look() -> None:
        app.runs.append(sidekiq.current_job().is_valid)
        batch.invalidate()
        app.runs.append(sidekiq.current_job().is_valid)

    app.deeds["look"] = look
    with batch.jobs():
        app.deed.perform_async("look")
    batch.wait(60)

    assert app.runs == [("look",), True, False]


def test_an_invalidated_batch_has_no_success_though_its_running_jobs_end_well(app: Program, worker: Any) -> None:
    """They may have left early; `complete` follows."""
    batch = watched(app)
    app.deeds["invalidate"] = batch.invalidate

    with batch.jobs():
        app.deed.perform_async("invalidate")
    status = batch.wait(60)
    app.wait_until_idle()

    assert (status.pending, status.success) == (0, False)
    assert app.events(batch.bid) == ["complete"]


def test_removed_members_are_waited_for_no_more(app: Program, worker: Any) -> None:
    """Whether they failed or wait somewhere."""
    batch = watched(app)
    with batch.jobs():
        failing = app.deed.perform_async("fail")
        later = app.deed.perform_in(3600, "later")
        app.deed.perform_async("ok")
    app.wait_until_idle()
    assert batch.status().pending == 2

    assert batch.remove([failing, later, "unknown"]) == 2

    status = batch.wait(10, until="success")
    assert (status.total, status.failures) == (1, 0)


def test_a_single_id_or_a_misspelled_event_is_refused(app: Program) -> None:
    """The letters of an id are no ids."""
    batch = watched(app)

    with pytest.raises(BatchError, match="give a list of ids"):
        batch.remove("0123456789abcdef01234567")
    with pytest.raises(BatchError, match=r"jids is None; give a list of ids, such as \[jid\]"):
        batch.remove(None)  # type: ignore[arg-type]
    with pytest.raises(BatchError, match="'sucess' is not an event of a batch; use one of complete, success, death"):
        batch.wait(1, until="sucess")  # type: ignore[arg-type]


def test_more_members_are_removed_than_a_script_takes_words(app: Program) -> None:
    """Lua can pass about 8,000 values to a function."""
    batch = watched(app)
    with batch.jobs():
        jids = app.deed.perform_bulk([["ok"]] * 9000)

    assert batch.remove(jids) == 9000

    assert batch.status().success


def test_a_batch_can_be_controlled_while_redis_is_full(app: Program) -> None:
    """That may be how to make room. Only pushes into it are refused."""
    batch = sidekiq.Batch()
    with batch.jobs():
        jids = app.deed.perform_bulk([["ok"]] * 3)
    app.client.config_set("maxmemory", 1)
    try:
        assert batch.remove(jids[:1]) == 1
        assert batch.invalidate() == 1
        assert batch.close() == 0
        with pytest.raises(SidekiqError, match="This Redis is full"), batch.jobs():
            pass
        batch.delete()
    finally:
        app.client.config_set("maxmemory", 0)

    assert list(Batches()) == []


def test_a_job_that_is_deleted_by_hand_is_gone(app: Program, worker: Any) -> None:
    """`complete` follows, `success` does not."""
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_in(3600, "later")
        app.deed.perform_async("ok")
    app.wait_until_idle()

    [entry] = sidekiq_api().ScheduledSet()
    assert entry.delete()

    status = batch.wait(60)
    assert (status.deleted, status.pending, status.success) == (1, 1, False)


@pytest.mark.parametrize(("act", "state"), [(RetrySet.kill_all, "dead"), (RetrySet.delete_many, "deleted")])
def test_many_members_are_killed_and_deleted_a_hundred_in_a_round_trip(
    app: Program, redis_client: redis.Redis, round_trips: RoundTripsOf, act: Callable[..., BulkResult], state: str
) -> None:
    """Each in a script of its own, in which its batch learns of it."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 300)
    [queue] = redis_client.keys("queue:*")
    redis_client.zadd("retry", dict.fromkeys(redis_client.lrange(queue, 0, -1), 4_000_000_000))
    retries = RetrySet()

    with round_trips() as made:
        result = act(retries, *([] if state == "dead" else [retries]))

    assert (result.moved, result.refused, retries.size) == (300, 0, 0)
    assert getattr(batch.status(), state) == 300
    assert made.count < 30


@pytest.mark.parametrize(("place", "from_end"), [(0, "1"), (-1, "-1")], ids=["newest", "oldest"])
def test_a_job_at_either_end_of_a_long_queue_is_deleted_without_a_walk_through_it(
    app: Program, redis_client: redis.Redis, place: int, from_end: str
) -> None:
    """Among a million jobs, each walk would hold up everybody else for 70 ms, and people delete thousands of jobs."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 500)
    [key] = redis_client.keys("queue:*")
    job = list(Queue(key.decode().removeprefix("queue:")))[place]

    with redis_client.monitor() as monitor:
        assert job.delete()
        redis_client.ping()
        commands = [one["command"] for one in takewhile(lambda one: one["command"] != "PING", monitor.listen())]

    assert job.value not in redis_client.lrange(key, 0, -1)
    assert batch.status().deleted == 1
    assert all(command.endswith("MAXLEN 100") for command in commands if command.startswith("LPOS"))
    removals = [command.split()[2] for command in commands if command.startswith("LREM")]
    if int(redis_client.info("server")["redis_version"].split(".")[0]) >= 7:
        assert removals == [from_end], "one that finds nothing is a walk, too"


def sidekiq_api() -> Any:
    """The module."""
    from sidekiq_py import api

    return api


def test_callbacks_go_to_the_callback_queue(app: Program) -> None:
    """Or to the queue of their own job."""
    batch = sidekiq.Batch(callback_queue="callbacks")
    batch.on("success", app.callback, {"id": 1}).on("complete", "Ruby::Done", 2).on("death", "Ruby::Done#on_death")
    with batch.jobs():
        pass

    complete, success = app.waiting("callbacks")

    assert (complete["class"], complete["args"]) == ("Ruby::Done", [batch.bid, "complete", 2])
    assert (success["class"], success["args"]) == ("Callback", [batch.bid, "success", {"id": 1}])
    assert complete["enqueued_at"] >= complete["created_at"]
    assert app.client.sismember("queues", "callbacks")


def test_a_callback_in_ruby_keeps_its_options(app: Program) -> None:
    """Those that the `ruby_job` was given."""
    batch = sidekiq.Batch().on("complete", sidekiq.ruby_job("Ruby::Done", queue="ruby", retry=3), 1)
    with batch.jobs():
        pass

    [complete] = app.waiting("ruby")

    assert (complete["class"], complete["queue"], complete["retry"]) == ("Ruby::Done", "ruby", 3)


def test_a_callback_may_have_other_options(app: Program) -> None:
    """Those of `set`."""
    batch = sidekiq.Batch().on("complete", app.callback.set(queue="low", retry=3))
    with batch.jobs():
        pass

    [complete] = app.waiting("low")

    assert (complete["class"], complete["retry"]) == ("Callback", 3)


def test_a_callback_may_be_a_class_with_a_static_method(app: Program) -> None:
    """It has no `self` that a caller would leave out."""

    class Static(sidekiq.Job, name="Static"):
        @staticmethod
        def perform(bid: str, event: str, options: Any) -> None: ...

    sidekiq.Batch().on("success", Static)


def test_a_callback_that_takes_other_arguments_is_refused(app: Program) -> None:
    """Such as one written for Sidekiq Pro, which passes a status and the options."""

    @sidekiq.job(name="TakesTwo")
    def takes_two(status: Any, options: Any) -> None: ...

    for callback in (takes_two, takes_two.set(queue="low"), "TakesTwo"):
        with pytest.raises(BatchError, match=r"takes \(status: Any, options: Any\), but is called with the batch's id"):
            sidekiq.Batch().on("success", callback)  # type: ignore[call-overload]


def test_the_keys_of_a_batch_expire_together(app: Program, worker: Any) -> None:
    """As it was asked for, a day behind the last job that is scheduled, and a day after success."""
    batch = watched(app, expires_in=timedelta(days=2))
    with batch.jobs():
        app.deed.perform_async("fail")
    batch.wait(60)
    keys = app.client.keys(f"sidekiq_py:batch:{batch.bid}*")
    assert len(keys) >= 6
    assert {round(app.client.ttl(key) / 3600) for key in keys} == {48}

    with sidekiq.Batch.find(batch.bid).jobs():
        app.deed.perform_in(10 * 24 * 3600, "later")
    assert {round(app.client.ttl(key) / 86400) for key in keys} == {11}

    done = sidekiq.Batch()
    with done.jobs():
        app.deed.perform_async("ok")
    done.wait(10, until="success")
    keys = app.client.keys(f"sidekiq_py:batch:{done.bid}*")
    assert {round(app.client.ttl(key) / 3600) for key in keys} == {24}


def test_a_parent_lives_on_while_its_children_move(app: Program) -> None:
    """It waits for them, and may itself not change for long."""
    parent, child = sidekiq.Batch(expires_in=1000), sidekiq.Batch(expires_in=500)
    with parent.jobs(), child.jobs():
        app.deed.perform_async("ok")
    for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*"):
        app.client.expire(key, 50)

    with child.jobs():
        app.deed.perform_async("ok")

    assert {app.client.ttl(key) > 900 for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*")} == {True}


def test_a_parent_lives_as_long_as_the_scheduled_jobs_of_its_children(app: Program) -> None:
    """It must be there when they run. What happens in the parent meanwhile does not shorten its life either."""
    outer, parent, child = sidekiq.Batch(), sidekiq.Batch(expires_in=3600), sidekiq.Batch()
    with outer.jobs(), parent.jobs(), child.jobs():
        app.deed.perform_in(60 * 24 * 3600, "later")
    with parent.jobs():
        app.deed.perform_async("ok")

    days = [round(app.client.ttl(f"sidekiq_py:batch:{one.bid}") / 86400) for one in (outer, parent, child)]

    assert days == [61, 61, 61]


def test_a_deep_nesting_costs_each_step_little(app: Program) -> None:
    """If each end of a job looked at all batches around it, the last one would do so at each level, in one script."""
    with ExitStack() as blocks:
        for _ in range(200):
            innermost = sidekiq.Batch()
            blocks.enter_context(innermost.jobs())
        app.deed.perform_async("ok")
    app.client.config_resetstat()

    with sidekiq.embed(concurrency=1):
        innermost.wait(20, until="success")

    calls = sum(int(stat["calls"]) for stat in app.client.info("commandstats").values())
    assert calls < 200 * 200
    assert {round(app.client.ttl(key) / 3600) for key in app.client.keys("sidekiq_py:batch:*")} == {24}
    assert list(Batches().in_state("running")) == []


def test_a_batch_that_is_gone_stays_gone(app: Program) -> None:
    """The end of a member makes no new key; nobody can add to it."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    batch.delete()
    assert app.client.keys("sidekiq_py:batch*") == []

    with sidekiq.embed(concurrency=1):
        app.wait_until_idle()

    assert app.runs == [("ok",)]
    assert app.client.keys("sidekiq_py:batch*") == []
    with pytest.raises(BatchGoneError):
        sidekiq.Batch.find(batch.bid)
    with pytest.raises(BatchGoneError), batch.jobs():
        pass


@pytest.mark.parametrize("value", [5, ["x"], ["x", "1"], ["x", -1], ["x", 4e9], ["../x", 1], [None, 1], ["x", 2**40]])
def test_a_membership_that_is_none_harms_nobody(app: Program, value: Any, worker: Any) -> None:
    """Anybody may have written it; the job runs like any other."""
    sidekiq.Client().push({"class": "Deed", "args": ["ok"], "sidekiq_py_batch": value})

    app.wait_until_idle()

    assert app.runs == [("ok",)]
    assert app.client.keys("sidekiq_py:batch:*") == []


def test_a_number_that_nobody_reserved_is_no_member(app: Program, worker: Any) -> None:
    """A bit at four billion would take half a gigabyte."""
    batch = sidekiq.Batch()
    with batch.jobs():
        pass
    sidekiq.Client().push({"class": "Deed", "args": ["ok"], "sidekiq_py_batch": [batch.bid, 4_000_000_000]})

    app.wait_until_idle()

    assert app.client.strlen(f"sidekiq_py:batch:{batch.bid}:succeeded") == 1


def test_wrong_calls_are_refused(app: Program) -> None:
    """With what to do instead."""
    batch = sidekiq.Batch()
    with pytest.raises(BatchError, match="not an event"):
        batch.on("done", app.callback)  # type: ignore[call-overload]
    with pytest.raises(BatchError, match="not a declared job"):
        batch.on("success", print)  # type: ignore[call-overload]
    with pytest.raises(BatchError, match="'' is not a declared job"):
        batch.on("success", "")
    with pytest.raises(SidekiqError):
        batch.on("success", app.callback, {1, 2})
    for seconds in (0, float("inf"), float("nan"), 1e300):
        with pytest.raises(BatchError, match="expires_in"):
            sidekiq.Batch(expires_in=seconds)
    with pytest.raises(BatchError, match="callback_queue is 'low ', with the character"):
        sidekiq.Batch(callback_queue="low ")
    with pytest.raises(BatchError, match="callback_queue is 5; give the queue's name"):
        sidekiq.Batch(callback_queue=5)  # type: ignore[arg-type]
    with batch.jobs(), pytest.raises(BatchError, match="already open"):
        batch.on("success", app.callback)
    open_one = sidekiq.Batch()
    with open_one.jobs(), pytest.raises(TimeoutError, match="1 may still add"):
        open_one.wait(0.05)


def test_an_active_job_is_no_callback() -> None:
    """By its name, it was enqueued without the job object that makes it one, and could not run."""

    @active_job("NotifyJob")
    def notify(bid: str, event: str, options: object) -> None: ...

    for named in (notify, "NotifyJob"):
        with pytest.raises(BatchError, match="NotifyJob is an Active Job, which cannot be a callback"):
            sidekiq.Batch().on("success", named)
    forget_active_jobs()


class Transaction:
    """What a database's adapter knows of one."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __call__(self, push: Any) -> bool:
        self.waiting.append(push)
        return True


def test_a_push_that_waits_for_a_commit_keeps_the_batch_open(app: Program, worker: Any) -> None:
    """It is a member once it is made, behind the block."""
    transaction = Transaction()
    program.push_after_commit(transaction)
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("ok")
    assert (batch.status().total, batch.status().state) == (0, "open")

    transaction.waiting.pop()()

    status = batch.wait(10, until="success")
    assert (status.total, status.openers) == (1, [])


def test_a_push_that_would_wait_for_a_commit_says_that_its_batch_is_gone(app: Program) -> None:
    """As any other push does. A program would take an error of Redis for an outage."""
    program.push_after_commit(Transaction())
    batch = watched(app)

    with suppress(BatchGoneError), batch.jobs():
        batch.delete()
        with pytest.raises(BatchGoneError):
            app.deed.perform_async("ok")


def test_a_rollback_gives_the_push_up(app: Program, worker: Any) -> None:
    """The batch waits for it no more."""
    transaction = Transaction()
    program.push_after_commit(transaction)
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("ok")

    transaction.waiting.clear()

    program.push_after_commit(None)
    assert batch.wait(10, until="success").total == 0


def test_an_active_job_that_retry_on_enqueues_again_joins_the_batch(app: Program, worker: Any) -> None:
    """Under a new jid, before its run ends."""
    forget_active_jobs()
    runs: list[int] = []

    @active_job("FlakyJob", retry_on={ZeroDivisionError: {"wait": 0, "attempts": 3, "jitter": 0}})
    def flaky() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ZeroDivisionError

    batch = watched(app)
    with batch.jobs():
        perform_later("FlakyJob")

    status = batch.wait(15, until="success")
    # The callbacks are jobs, too.
    eventually(lambda: app.events(batch.bid) == ["complete", "success"])
    forget_active_jobs()

    assert len(runs) == 3
    assert (status.total, status.pending) == (3, 0)


def test_under_a_namespace_all_keys_begin_with_it(app: Program, redis_url: str) -> None:
    """Those that the scripts make of a batch's key, too."""
    program.configure(redis_url=redis_url, sidekiq_version="6", namespace="myapp")
    batch = watched(app)
    with batch.jobs():
        app.deed.perform_async("ok")
        app.once.perform_async("fail")

    with sidekiq.embed(concurrency=1):
        status = batch.wait(60)
        eventually(lambda: len(app.calls) == 2)

    assert (status.total, status.dead) == (2, 1)
    assert app.events(batch.bid) == ["complete", "death"]
    assert {key.split(b":")[0] for key in app.client.keys("*")} == {b"myapp"}


def test_a_parent_whose_child_lives_longer_outlives_it(app: Program) -> None:
    """Otherwise nothing would be called back once the child has ended."""
    parent, child = sidekiq.Batch(expires_in=100), sidekiq.Batch(expires_in=10000)

    with parent.jobs(), child.jobs():
        app.deed.perform_async("ok")

    assert {app.client.ttl(key) > 9900 for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*")} == {True}


def test_a_batch_that_is_opened_again_or_invalidated_lives_on(app: Program) -> None:
    """Both are changes, so the audit and the end of its life start anew."""
    batch = sidekiq.Batch(expires_in=1000)
    with batch.jobs():
        app.deed.perform_async("ok")
    key = steps.key(batch.bid)
    app.client.hset(key, "changed_at", 1)

    with batch.jobs():
        assert batch.status().changed_at > 1
    for name in app.client.keys(f"{key}*"):
        app.client.expire(name, 50)
    batch.invalidate()

    assert {app.client.ttl(name) > 900 for name in app.client.keys(f"{key}*")} == {True}


def test_a_batch_that_is_closed_by_hand_lives_on(app: Program) -> None:
    """It is a change like any other, and its callbacks come."""
    batch = watched(app, expires_in=1000)
    key = steps.key(batch.bid)
    with batch.jobs():
        app.deed.perform_async("ok")
        with sidekiq.embed(concurrency=1):
            app.wait_until_idle()
        # The counter is wrong, as after a failover that lost a step.
        app.client.hset(key, mapping={"changed_at": 1, "tokens": 5})
        for name in app.client.keys(f"{key}*"):
            app.client.expire(name, 50)

        sidekiq.Batch.find(batch.bid).close()

        assert [job["class"] for job in app.waiting()] == ["Callback"] * 2
        assert batch.status().changed_at > 1
        assert int(app.client.hget(key, "closed_by_hand_at")) > 1
        assert app.client.hget(key, "tokens") == b"0"
        assert {app.client.ttl(name) > 900 for name in app.client.keys(f"{key}*")} == {True}


def test_success_shortens_a_life_and_does_not_lengthen_it(app: Program) -> None:
    """To a day at most."""
    batch = sidekiq.Batch(expires_in=1000)
    with batch.jobs():
        app.deed.perform_async("ok")

    with sidekiq.embed(concurrency=1):
        batch.wait(10, until="success")

    assert {900 < app.client.ttl(key) <= 1000 for key in app.client.keys(f"sidekiq_py:batch:{batch.bid}*")} == {True}


def test_a_job_that_is_scheduled_soon_does_not_shorten_a_life(app: Program) -> None:
    """Only one that comes later than the end lengthens it."""
    batch = sidekiq.Batch(expires_in=timedelta(days=10))

    with batch.jobs():
        app.client.expire(f"sidekiq_py:batch:{batch.bid}", 50)
        app.deed.perform_in(60, "soon")

    assert round(app.client.ttl(f"sidekiq_py:batch:{batch.bid}") / 86400) == 10


def test_an_end_that_hardly_moves_is_not_written(app: Program) -> None:
    """EXPIRE for all keys at each step would cost Redis more than the step."""
    batch = sidekiq.Batch(expires_in=1000)
    with batch.jobs():
        app.deed.perform_async("ok")
    for key in app.client.keys(f"sidekiq_py:batch:{batch.bid}*"):
        app.client.expire(key, 990)
    app.client.config_resetstat()

    sidekiq.Batch.find(batch.bid).invalidate()

    assert "cmdstat_expire" not in app.client.info("commandstats")


def test_a_new_key_expires_with_the_others(app: Program) -> None:
    """Though the end of their life does not move."""
    batch = sidekiq.Batch(expires_in=1000)
    with batch.jobs():
        app.deed.perform_async("fail")
    for key in app.client.keys(f"sidekiq_py:batch:{batch.bid}*"):
        app.client.expire(key, 990)
    before = len(app.client.keys(f"sidekiq_py:batch:{batch.bid}*"))

    with sidekiq.embed(concurrency=1):
        batch.wait(60)

    keys = app.client.keys(f"sidekiq_py:batch:{batch.bid}*")
    assert len(keys) > before
    assert {900 < app.client.ttl(key) <= 990 for key in keys} == {True}


def test_a_parent_ends_a_minute_before_its_child_at_most(app: Program) -> None:
    """The twentieth part of a long life would be days."""
    parent, child = sidekiq.Batch(expires_in=100), sidekiq.Batch(expires_in=timedelta(days=60))
    with parent.jobs(), child.jobs():
        app.deed.perform_async("ok")
    for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*"):
        app.client.expire(key, timedelta(days=59))

    with child.jobs():
        app.deed.perform_async("ok")

    assert round(app.client.ttl(f"sidekiq_py:batch:{parent.bid}") / 3600) == 60 * 24


def test_a_child_that_has_succeeded_does_not_lengthen_its_parent_s_life(app: Program) -> None:
    """The parent no longer waits for it."""
    parent, child = sidekiq.Batch(expires_in=1000), sidekiq.Batch()
    with parent.jobs():
        app.deed.set(queue="not_served").perform_async("ok")
        with child.jobs():
            app.deed.perform_async("ok")
    for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*"):
        app.client.expire(key, 1000)

    with sidekiq.embed(concurrency=1, queues=["default"]):
        child.wait(10, until="success")

    assert {900 < app.client.ttl(key) <= 1000 for key in app.client.keys(f"sidekiq_py:batch:{parent.bid}*")} == {True}


def test_a_job_that_a_member_s_end_pushes_joins_in_a_queue_that_is_listed(app: Program) -> None:
    """Ruby's Web UI and workers with wildcards find queues in this list."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    pool = sync_client.current().pool

    steps.call(pool, "join", batch.bid, "queue", "fresh", '{"class":"Deed","args":["ok"],"jid":"1"}')

    assert app.client.sismember("queues", "fresh")
    assert app.waiting("fresh")[0]["sidekiq_py_batch"][0] == batch.bid
    assert batch.status().total == 2


@pytest.mark.parametrize(("kind", "place"), [("queue", "queue:fresh"), ("schedule", "schedule")])
def test_a_job_does_not_join_where_it_cannot_be_pushed(app: Program, kind: str, place: str) -> None:
    """Otherwise the batch would wait for it forever."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.set(place, "of another program")

    with pytest.raises(RedisReplyError, match=f"WRONGTYPE {place}"):
        steps.call(sync_client.current().pool, "join", batch.bid, kind, {"queue": "fresh"}.get(kind, 5), "{}")

    assert batch.status().total == 1


def test_the_status_lists_failed_and_dead_jobs(app: Program, worker: Any) -> None:
    """A job that waits for a retry has failed; one without retries is dead."""
    batch = sidekiq.Batch()
    with batch.jobs():
        failed = app.deed.perform_async("fail")
        dead = app.once.perform_async("fail")
        app.deed.perform_async("ok")

    status = batch.wait(10, until="complete")

    assert (status.failed_jids, status.dead_jids) == ([failed], [dead])
