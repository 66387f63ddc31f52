"""Ends of jobs that no command to Redis can carry."""

import asyncio
import json
import threading
from inspect import iscoroutinefunction
from typing import Any

import pytest
import redis

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.run import running_jobs
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.outcome import Outcome, Question
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from tests.engine.embedded_worker import Worker
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually


def declare(worker: Worker, word: Any, question: Question | None = None) -> None:
    """The job `odd`, whose end has that word in it, and `fine`, which counts itself."""
    worker.declare("odd", lambda _: None).decide_outcome = lambda attempt: Outcome(
        "done", attempt.payload, vital=(("INCR", "odd"), ("RPUSH", "words", word)), question=question
    )
    worker.declare("fine", lambda _: None).decide_outcome = lambda attempt: Outcome(
        "done", attempt.payload, vital=(("HINCRBY", "ended", "n", 1),)
    )


def declare_end(worker: Worker, vital: Any) -> None:
    """The jobs, `odd` with that end."""
    declare(worker, "word")
    odd = worker.registry.find("odd")
    assert odd is not None
    odd.decide_outcome = lambda attempt: Outcome("done", attempt.payload, vital=vital)


@pytest.mark.parametrize(
    "vital",
    [
        *[(("INCR", "odd"), ("RPUSH", "words", word)) for word in ("\ud800", None, object())],
        *[(("INCR", "odd"), effect) for effect in (("INCR",), (), [], None, 5, "INCR")],
    ],
)
def test_such_a_job_is_kept_in_dead_and_no_other_is_held_up(
    redis_client: redis.Redis, worker: Worker, vital: Any
) -> None:
    """Nothing of its end is written; those handed in beside it are ended once, and none is in flight any more."""
    declare_end(worker, vital)
    push_jobs(redis_client, [job_text(n, "odd" if n in (3, 7) else ("fine" if n % 2 else "run")) for n in range(20)])
    worker.start()

    eventually(lambda: redis_client.zcard("dead") == 2)
    eventually(lambda: redis_client.hget("ended", "n") == b"8")
    eventually(lambda: jobs_in_flight(redis_client) == [])
    eventually(lambda: redis_client.mget("stat:processed", "stat:failed") == [b"20", b"2"])
    assert [json.loads(job)["class"] for job in redis_client.zrange("dead", 0, -1)] == ["odd", "odd"]
    assert redis_client.exists("odd", "words") == 0


def test_a_question_that_cannot_be_asked_costs_the_end_nothing(redis_client: redis.Redis, worker: Worker) -> None:
    """It is left out, and the end is written."""
    declare(worker, "word", Question(("GET", "\ud800"), lambda _: None))
    push_jobs(redis_client, [job_text(n, "odd" if n == 3 else "fine") for n in range(10)])
    worker.start()

    eventually(lambda: redis_client.hget("ended", "n") == b"9")
    eventually(lambda: redis_client.lrange("words", 0, -1) == [b"word"])
    assert redis_client.zcard("dead") == 0


async def _run_by_the_loop(_: int) -> None:
    pass


@pytest.mark.parametrize("function", [lambda _: None, _run_by_the_loop])
@pytest.mark.parametrize("kind", ["dead", "discarded"])
def test_an_end_that_is_no_success_becomes_a_failure(
    redis_client: redis.Redis, worker: Worker, kind: Any, function: Any
) -> None:
    """It is written at once, and says there and then that it cannot be: the job fails by that, and waits for a try."""
    is_async = iscoroutinefunction(function)
    worker.declare("odd", function, is_async=is_async).decide_outcome = lambda attempt: Outcome(
        kind, attempt.payload, vital=(("RPUSH", "words", "\ud800"),)
    )
    push_jobs(redis_client, [job_text(1, "odd")])
    worker.start()

    eventually(lambda: redis_client.zcard("retry") == 1)
    [kept] = redis_client.zrange("retry", 0, -1)
    assert json.loads(kept)["error_class"] == "UnicodeEncodeError"
    eventually(lambda: jobs_in_flight(redis_client) == [])


def test_a_stop_does_not_wait_for_the_end_of_a_job_whose_inbox_was_overwritten(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job left flight with the inbox. The log says what finds such a key."""
    is_overwritten = threading.Event()

    def overwrite(_: int) -> None:
        for inbox in redis_client.scan_iter("sidekiq_py:inbox:*"):
            redis_client.set(inbox, "foreign")
            is_overwritten.set()
        worker.ran.append(1)

    def push_to_the_waiting(name: str) -> None:
        """A job comes into the inbox if the worker waits for it. If the wait ends just now, a fetch finds the job."""
        eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        count = len(worker.ran)
        push_jobs(redis_client, [job_text(1, name)])
        eventually(lambda: len(worker.ran) > count)

    def is_inbox_overwritten() -> bool:
        push_to_the_waiting("overwrite")
        return is_overwritten.is_set()

    def is_move_refused() -> bool:
        push_to_the_waiting("run")
        return "until the key that sidekiq-py doctor names is repaired" in caplog.text

    worker.declare("overwrite", overwrite)
    launcher = worker.start()
    eventually(is_inbox_overwritten)
    # A move is refused once there is a job to move.
    eventually(is_move_refused)

    # Longer than this test waits.
    monkeypatch.setattr(running_jobs, "_ACCEPT_SECONDS", 300.0)
    stop = threading.Thread(target=launcher.stop, kwargs={"timeout_seconds": 300})
    stop.start()

    eventually(lambda: not stop.is_alive())


def test_a_job_that_fails_while_its_key_is_overwritten_waits_for_its_retry(
    redis_client: redis.Redis, worker: Worker
) -> None:
    """Nobody else can run it: when the foreign key is deleted, the job is nowhere."""

    def overwrite(_: int) -> None:
        for key in (*redis_client.keys("sidekiq_py:inflight:*"), *redis_client.keys("sidekiq_py:inbox:*")):
            redis_client.set(key, "foreign")
        raise ValueError("failed")

    worker.declare("overwrite", overwrite)
    push_jobs(redis_client, [job_text(1, "overwrite")])
    worker.start()

    eventually(lambda: redis_client.zcard("retry") == 1)
    redis_client.delete(*redis_client.keys("sidekiq_py:inflight:*"))
    worker.stop()
    assert redis_client.zcard("retry") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_a_stop_cuts_off_while_its_key_is_overwritten_goes_back_to_its_queue(
    redis_client: redis.Redis, worker: Worker, *, is_async: bool
) -> None:
    """Only its worker still has its bytes."""
    is_overwritten = threading.Event()

    def overwrite() -> None:
        for key in (*redis_client.keys("sidekiq_py:inflight:*"), *redis_client.keys("sidekiq_py:inbox:*")):
            redis_client.set(key, "foreign")
        is_overwritten.set()

    def run(_: int) -> None:
        overwrite()
        while True:
            # Shutdown is raised between two instructions.
            threading.Event().wait(0.01)

    async def run_by_the_loop(_: int) -> None:
        overwrite()
        await asyncio.Event().wait()

    worker.declare("overwrite", run_by_the_loop if is_async else run, is_async=is_async)
    raw = job_text(1, "overwrite")
    push_jobs(redis_client, [raw])
    worker.start()
    eventually(is_overwritten.is_set)

    worker.stop()

    assert redis_client.lrange("queue:default", 0, -1) == [raw.encode()]
    assert redis_client.smembers("queues") == {b"default"}


def new_settler(pool: Pool, counted: list[int]) -> Settler:
    """A settler that adds the numbers of jobs it counts to *counted*."""
    return Settler(
        pool.new_link(),
        on_pending=lambda: None,
        on_lost_connection=lambda: None,
        count=counted.append,
        downtime=Downtime(),
    )


def test_a_stop_waits_again_once_the_user_has_its_rights_back(
    pool: Pool, link: Link, redis_client: redis.Redis
) -> None:
    """A fetch may have carried the ends that were refused before; a failover that follows passes by itself."""
    ownership = Ownership("host:1:abc", ["default"], 30)
    owner = ownership.current
    settler = new_settler(pool, [])
    settler.acknowledge(UnitOfWork(b"first", "default", owner, b"1.0:default", is_marked=False, fetched_at=0.0))
    redis_client.execute_command("ACL", "SETUSER", "default", "-hdel")
    try:
        with pytest.raises(RedisReplyError, match="NOPERM"):
            settler.flush()
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+hdel")
    assert not settler.is_waiting_for_redis
    with_a_fetch = settler.drain_plain()
    assert with_a_fetch is not None
    assert with_a_fetch.note(link.batch(with_a_fetch.commands))

    settler.acknowledge(UnitOfWork(b"second", "default", owner, b"1.1:default", is_marked=False, fetched_at=0.0))

    assert settler.is_waiting_for_redis
    settler.close()


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("is_success", [False, True])
def test_the_end_of_a_job_whose_key_was_overwritten_is_written_once(
    pool: Pool, redis_client: redis.Redis, *, is_success: bool, is_listed: bool
) -> None:
    """Also if Redis refuses a part of it until the job's key has been deleted."""
    owner = Ownership("host:1:abc", ["default"], 30).current
    redis_client.hset(keys.OWNERS, owner.name, "{}")
    redis_client.set(keys.inbox(owner.name, "default") if is_listed else keys.in_flight(owner.name), "foreign")
    redis_client.set("words", "foreign")
    settler = new_settler(pool, [])
    field = b"1.0@default" if is_listed else b"1.0:default"
    unit = UnitOfWork(b"job", "default", owner, field, False, 0.0, is_listed=is_listed)
    vital = (("RPUSH", "words", "word"),)

    if is_success:
        unit.end = vital, ()
        settler.acknowledge(unit)
        settler.flush()
    else:
        settler.settle(unit, vital, ())
    redis_client.delete(keys.inbox(owner.name, "default"), keys.in_flight(owner.name), "words")

    eventually(lambda: redis_client.lrange("words", 0, -1) == [b"word"])
    settler.close()


def test_the_end_of_a_recovered_job_is_not_written_though_its_key_was_overwritten(
    pool: Pool, redis_client: redis.Redis
) -> None:
    """Another process has it. Recovery has removed the owner from the registry."""
    owner = Ownership("host:1:abc", ["default"], 30).current
    redis_client.set(keys.inbox(owner.name, "default"), "foreign")
    settler = new_settler(pool, [])
    unit = UnitOfWork(b"job", "default", owner, b"1.0@default", False, 0.0, is_listed=True)

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        settler.settle_once(unit, (("RPUSH", "words", "word"),), ())

    assert not redis_client.exists("words")
    settler.close()


@pytest.mark.parametrize("goes_along", [False, True])
def test_an_overwritten_inbox_holds_up_no_end_of_another_job(
    pool: Pool, link: Link, redis_client: redis.Redis, goes_along: bool
) -> None:
    """Otherwise each end would send all those before it again, and none would be counted, until the key is repaired."""
    owner = Ownership("host:1:abc", ["default", "other"], 30).current
    counted: list[int] = []
    settler = new_settler(pool, counted)
    redis_client.set(keys.inbox(owner.name, "default"), "foreign")
    redis_client.lpush(keys.inbox(owner.name, "other"), "second")
    for raw, queue in ((b"first", "default"), (b"second", "other")):
        unit = UnitOfWork(raw, queue, owner, b"1.0@" + queue.encode(), False, 0.0, is_listed=True)
        owner.units[unit.field] = unit
        settler.acknowledge(unit)

    if goes_along:
        with_a_fetch = settler.drain_plain()
        assert with_a_fetch is not None
        assert with_a_fetch.note(link.batch(with_a_fetch.commands))
    else:
        settler.flush()

    assert not settler.has_pending
    assert owner.units == {}
    assert counted == [1]
    assert redis_client.get(keys.inbox(owner.name, "default")) == b"foreign"
    assert not redis_client.exists(keys.inbox(owner.name, "other"))
    settler.close()


def test_an_overwritten_inbox_of_an_earlier_epoch_holds_up_no_end_of_this_one(
    pool: Pool, redis_client: redis.Redis
) -> None:
    """Jobs that ended in a process that stops must not run again because of a key that it used before."""
    ownership = Ownership("host:1:abc", ["default"], 30)
    former = ownership.current
    ownership.advance(former)
    owner = ownership.current
    counted: list[int] = []
    settler = new_settler(pool, counted)
    redis_client.set(keys.inbox(former.name, "default"), "foreign")
    redis_client.lpush(keys.inbox(owner.name, "default"), "second")
    for raw, its in ((b"first", former), (b"second", owner)):
        settler.acknowledge(UnitOfWork(raw, "default", its, b"0.1@default", False, 0.0, is_listed=True))

    settler.flush()

    assert not redis_client.exists(keys.inbox(owner.name, "default"))
    assert sum(counted) == 1
    settler.close()
