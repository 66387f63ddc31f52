"""
From the buffer to its end a job always has a keeper: whatever is raised on the way, it is run, settled or given back.

Where nothing real can be made to raise at the right instant, a part of the engine is made to.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pytest
import redis

from sidekiq_py.clock import now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.fetch import basic, buffer, waiters
from sidekiq_py.engine.fetch.basic import BasicFetcher
from sidekiq_py.engine.fetch.buffer import Buffer
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.leader import Leader
from sidekiq_py.engine.fetch.redis_errors import RedisErrors
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.fetch.side_channel import SideChannel
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.run import processor
from sidekiq_py.engine.run.attempt import AttemptEnd
from sidekiq_py.errors import JobNotFoundError, RedisConnectionError
from sidekiq_py.outcome import Outcome
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.wire import keys
from tests.engine.embedded_worker import Worker
from tests.engine.fetch.in_flight_jobs import push
from tests.support.cutting_proxy import CuttingProxy, Where
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


class Faults:
    """Makes methods raise, so many times each."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.raised: list[str] = []

    def put(self, part: type, name: str, error: BaseException, times: int = 1, *, after: bool = False) -> None:
        """Before *part*'s method does its work, or after it."""
        method, left = getattr(part, name), [times]

        def faulty(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs) if after else None
            if left[0] > 0:
                left[0] -= 1
                self.raised.append(name)
                raise error
            return result if after else method(*args, **kwargs)

        self._patch.setattr(part, name, faulty)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Gone after the test."""
    monkeypatch.setattr(processor, "_PAUSE_SECONDS", 0.01)
    return Faults(monkeypatch)


@pytest.fixture
def worker(redis_url: str, faults: Faults) -> Iterator[Worker]:
    """Not started yet; of one thread."""
    one = Worker(redis_url)
    one.hooks.on_error(lambda error, context: one.reported.append(context["context"]))
    yield one
    one.stop()


# ---- taking


@pytest.fixture
def fetcher(pool: Pool) -> Iterator[ReliableFetcher]:
    """No thread runs, so that nothing comes or goes unasked."""
    calls: list[Any] = []
    one = ReliableFetcher(
        CapsuleConfig(),
        Config(),
        pool,
        Ownership("me:1:abc", ["default"], 30),
        report=lambda error, context: None,
        on_notices=calls.append,
    )
    yield one
    one.close()


def fill(fetcher: ReliableFetcher, count: int) -> None:
    """Fetch so many jobs into the buffer."""
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(count)


@pytest.mark.parametrize(
    ("part", "step"), [(Buffer, "refill"), (SideChannel, "confirm"), (SideChannel, "refresh_notices")], ids=str
)
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), ValueError("odd")], ids=repr)
def test_a_job_that_is_about_to_start_is_kept_whatever_is_raised(
    fetcher: ReliableFetcher, redis_client: redis.Redis, faults: Faults, part: type, step: str, error: BaseException
) -> None:
    """It has left the buffer by then; it is the next one, if it is not taken all the same."""
    push(redis_client, "a", "b")
    fill(fetcher, 2)
    first = fetcher._buffer.jobs[0]
    fetcher._buffer.low_water = 9
    first.fetched_at = 0.0
    if step == "confirm":
        fetcher._ownership.current.confirmed_at = 0.0
    faults.put(part, step, error)

    taken = None
    with suppress(type(error)):
        taken = fetcher.take()

    assert faults.raised == [step]
    assert (taken or fetcher.take()) is first


def test_a_quiet_worker_does_not_keep_a_job_that_it_cannot_ask_redis_about(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """It may stay quiet for hours; the job goes back once Redis answers."""
    with CuttingProxy(redis_server.port) as proxy:
        pool = Pool(RedisSettings(proxy.url, socket_timeout_seconds=0.5))
        ownership = Ownership("me:1:abc", ["default"], 30)
        fetcher = ReliableFetcher(CapsuleConfig(), Config(), pool, ownership, report=lambda error, context: None)
        push(redis_client, "a")
        fill(fetcher, 1)
        proxy.swallow(True)
        ownership.current.confirmed_at = 0.0
        taken: list[UnitOfWork | None] = []
        thread = threading.Thread(target=lambda: taken.append(fetcher.take()))
        thread.start()
        eventually(lambda: not fetcher.reserved)

        fetcher._side.quiet()
        fetcher._leader.quiet()
        thread.join()

        assert taken == [None]
        proxy.swallow(False)
        with pool.link() as link:
            assert ownership.give_back_orphans(link) == 1
        assert redis_client.lrange("queue:default", 0, -1) == [b"a"]
        fetcher.close()
        pool.close()


def test_what_a_fetch_brought_goes_back_where_its_reply_cannot_be_read_to_the_end(
    fetcher: ReliableFetcher, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, link: Any
) -> None:
    """Half of the jobs would stand in the table of those that are here, and nowhere else."""
    made: list[bytes] = []

    class Scarce(UnitOfWork):
        """There is memory for one."""

        def __init__(self, raw: bytes, *args: Any) -> None:
            if made:
                raise MemoryError
            made.append(raw)
            super().__init__(raw, *args)

    push(redis_client, "a", "b", "c")
    monkeypatch.setattr("sidekiq_py.engine.fetch.exchange.UnitOfWork", Scarce)

    with pytest.raises(MemoryError):
        fill(fetcher, 3)

    assert fetcher._ownership.give_back_orphans(link) == 3
    assert redis_client.rpop("queue:default", 3) == [b"a", b"b", b"c"]


def test_acknowledgements_survive_a_fetch_that_fails_before_it_is_sent(
    fetcher: ReliableFetcher, redis_client: redis.Redis, faults: Faults
) -> None:
    """They have left the list of what is to be handed in by then."""
    push(redis_client, "a", "b")
    fill(fetcher, 1)
    unit = fetcher._buffer.jobs.popleft()
    fetcher._settler.acknowledge(unit)
    faults.put(Exchange, "_flush_with", MemoryError())

    with pytest.raises(MemoryError):
        fill(fetcher, 1)
    fetcher._settler.flush()

    assert unit.raw not in jobs_in_flight(redis_client)
    assert unit.field not in fetcher._ownership.current.units


@pytest.mark.parametrize(("part", "name"), [(RedisErrors, "online"), (buffer, "note_fetched")], ids=["log", "event"])
def test_what_a_move_has_brought_runs_although_it_or_the_end_of_an_outage_cannot_be_told(
    worker: Worker, redis_client: redis.Redis, faults: Faults, monkeypatch: pytest.MonkeyPatch, part: Any, name: str
) -> None:
    """A filter or a handler of the program's log may raise. The job was in flight, and in no buffer."""
    collect = Waiters.collect

    def bring(*args: Any) -> tuple[list[UnitOfWork], bool]:
        units, is_signalled = collect(*args)
        if units:
            faults.put(part, name, SystemExit())
        return units, is_signalled

    monkeypatch.setattr(Waiters, "collect", bring)
    worker.start()
    eventually(lambda: any(client["cmd"] == "blmove" for client in redis_client.client_list()))

    push_jobs(redis_client, [job_text(1, "run")])

    eventually(lambda: worker.ran == [1])
    assert faults.raised == [name]


def test_what_a_move_has_brought_goes_back_if_another_move_fails_beyond_measure(
    pool: Pool, link: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have come in one look; the first stands in the table already."""
    ownership = Ownership("me:1:abc", ["default", "low"], 30)
    redis_client.hset(keys.OWNERS, ownership.current.name, ownership.current.about)
    ownership.current.published = ownership.current.about
    group = Waiters(pool, ownership, ["default", "low"], 0.05)
    group.open(())
    eventually(lambda: sum(client["cmd"] == "blmove" for client in redis_client.client_list()) == 2)
    redis_client.lpush("queue:default", "a")
    redis_client.lpush("queue:low", "b")
    eventually(lambda: len(jobs_in_flight(redis_client)) == 2)
    received: list[bytes] = []
    receive = waiters.Waiter.receive

    def once(self: Any, *args: Any) -> UnitOfWork | None:
        if received:
            raise KeyboardInterrupt
        unit = receive(self, *args)
        if unit is not None:
            received.append(unit.raw)
        return unit

    monkeypatch.setattr(waiters.Waiter, "receive", once)
    with pytest.raises(KeyboardInterrupt):
        group.collect(None, 5)
    group.close()

    assert received
    assert ownership.give_back_orphans(link) == 2
    assert redis_client.llen("queue:default") == redis_client.llen("queue:low") == 1


# ---- running


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()], ids=repr)
def test_a_job_whose_end_cannot_be_worked_out_is_kept_in_dead(
    worker: Worker, redis_client: redis.Redis, faults: Faults, error: BaseException
) -> None:
    """Otherwise it would stay in flight until the process ends, and then run again."""
    worker.declare("fail", lambda number: 1 / 0)
    faults.put(AttemptEnd, "_fail", error, times=2)
    push_jobs(redis_client, [job_text(1, "fail"), job_text(2, "run")])
    worker.start()

    eventually(lambda: worker.ran == [2])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    assert redis_client.zcard("dead") + redis_client.zcard("retry") == 1
    assert "Internal error" in worker.reported


def test_an_error_of_our_own_while_settling_does_not_leave_the_job_in_flight(
    worker: Worker, redis_client: redis.Redis, faults: Faults
) -> None:
    """If it were only logged, nobody would have the job."""
    worker.declare("fail", lambda number: 1 / 0)
    faults.put(AttemptEnd, "_fail", JobNotFoundError("odd"))
    push_jobs(redis_client, [job_text(1, "fail")])
    worker.start()

    eventually(lambda: redis_client.zcard("retry") == 1)
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)


def test_a_success_that_cannot_be_gathered_is_no_job_lost(
    worker: Worker, redis_client: redis.Redis, faults: Faults
) -> None:
    """It counts as handed in only when it is."""
    faults.put(Settler, "acknowledge", MemoryError())
    push_jobs(redis_client, [job_text(1, "run")])
    worker.start()

    eventually(lambda: worker.ran == [1])
    eventually(lambda: redis_client.zcard("retry") == 1)
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)


def test_a_success_that_was_gathered_is_handed_in_though_the_first_try_fails(
    fetcher: ReliableFetcher, redis_client: redis.Redis, faults: Faults
) -> None:
    """It is no failure of the job that has ended: raised to its thread, it would be run again."""
    push(redis_client, "a")
    fill(fetcher, 1)
    faults.put(Settler, "flush", MemoryError())

    fetcher.acknowledge(fetcher._buffer.jobs.popleft(), 1.0)

    assert faults.raised == ["flush"]
    fetcher._settler.flush()
    assert jobs_in_flight(redis_client) == []


def test_a_thread_that_fails_beyond_measure_begins_anew(
    worker: Worker, redis_client: redis.Redis, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetching fails, and so does saying so: the worker's only thread would be gone, and nobody told."""

    class Leaving(logging.Handler):
        """A log that exits, once."""

        has_left = False

        def emit(self, record: logging.LogRecord) -> None:
            """Exit."""
            if not self.has_left and "Internal error" in record.getMessage():
                self.has_left = True
                raise SystemExit

    monkeypatch.setattr("sidekiq_py.engine.background._PAUSE_SECONDS", 0.01)
    worker.hooks.clear()
    faults.put(Leader, "wait", MemoryError())
    log = logging.getLogger("sidekiq")
    leaving = Leaving()
    log.addHandler(leaving)
    monkeypatch.setattr(processor.log, "exception", lambda *args: (_ for _ in ()).throw(SystemExit))
    worker.start()

    push_jobs(redis_client, [job_text(1, "run")])
    eventually(lambda: worker.ran == [1])
    log.removeHandler(leaving)
    assert leaving.has_left


def test_a_job_at_hand_goes_back_when_its_thread_fails_beyond_measure(
    worker: Worker, redis_client: redis.Redis, faults: Faults
) -> None:
    """Nothing at all could be written of its end."""
    faults.put(AttemptEnd, "rescued", MemoryError())
    faults.put(processor.Processor, "_process", MemoryError())
    push_jobs(redis_client, [job_text(1, "run")])
    worker.start()

    eventually(lambda: worker.ran == [1])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    assert faults.raised == ["_process", "rescued"]


# ---- on the event loop


def declare_async(worker: Worker) -> None:
    """A job that notes that it ran."""

    async def arun(number: int) -> None:
        worker.ran.append(number)

    worker.declare("arun", arun, is_async=True)


def test_an_async_job_whose_task_cannot_be_made_goes_back(
    worker: Worker, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a task factory of the program; those behind it run."""
    declare_async(worker)
    create, left = asyncio.BaseEventLoop.create_task, [2]

    def scarce(loop: Any, steps: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise RuntimeError("no task for you")
        return create(loop, steps, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", scarce)
    push_jobs(redis_client, [job_text(number, "arun") for number in range(3)])
    worker.start()

    eventually(lambda: sorted(worker.ran) == [0, 1, 2])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    assert worker.launcher is not None
    assert worker.launcher.parts.loop is not None
    loop = worker.launcher.parts.loop
    eventually(lambda: loop.running == 0)


def test_an_async_job_that_is_cancelled_before_its_first_step_goes_back(
    worker: Worker, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may cancel all tasks of the loop; no step of this one ever comes, not even its end."""
    declare_async(worker)
    create, left = asyncio.BaseEventLoop.create_task, [1]

    def cancelled(loop: Any, steps: Any, **options: Any) -> Any:
        task = create(loop, steps, **options)
        if left[0] and str(options.get("name")).startswith("sidekiq.job"):
            left[0] -= 1
            task.cancel()
        return task

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", cancelled)
    push_jobs(redis_client, [job_text(1, "arun")])
    worker.start()

    eventually(lambda: worker.ran == [1])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)


def test_an_async_job_that_is_cancelled_while_its_end_is_written_has_ended(
    worker: Worker, redis_client: redis.Redis, faults: Faults
) -> None:
    """It would stay in flight, or be run once more."""
    tasks: list[Any] = []

    async def fail(number: int) -> None:
        tasks.append(asyncio.current_task())
        worker.ran.append(number)
        raise ValueError("boom")

    settle = AttemptEnd.failed

    def slowly(self: AttemptEnd, *args: Any) -> None:
        tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
        settle(self, *args)

    worker.declare("fail", fail, is_async=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttemptEnd, "failed", slowly)
        push_jobs(redis_client, [job_text(1, "fail")])
        worker.start()
        eventually(lambda: redis_client.zcard("retry") == 1)
        eventually(lambda: len(jobs_in_flight(redis_client)) == 0)

    assert worker.ran == [1]
    assert redis_client.get(keys.STAT_FAILED) == b"1"


def test_a_loop_that_cannot_be_told_of_a_job_leaves_it_to_the_thread(
    worker: Worker, redis_client: redis.Redis, faults: Faults
) -> None:
    """And hears of the next one."""
    declare_async(worker)
    push_jobs(redis_client, [job_text(1, "arun"), job_text(2, "arun")])
    faults.put(asyncio.BaseEventLoop, "call_soon_threadsafe", MemoryError())
    worker.start()

    eventually(lambda: worker.ran == [2])
    eventually(lambda: redis_client.zcard("retry") == 1)
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)


# ---- the basic fetcher


def test_a_failure_is_written_when_redis_is_back(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis has the job no more: what is written nowhere is lost."""
    worker = Worker(redis_server.url)

    def fail(number: int) -> None:
        worker.ran.append(number)
        raise ValueError("boom")

    worker.declare("fail", fail)
    push_jobs(redis_client, [job_text(1, "fail")])
    run, left = Pool.run, [3]

    def away(self: Pool, use: Callable[[Any], Any], *, idempotent: bool = True) -> Any:
        if not idempotent and worker.ran and left[0]:
            left[0] -= 1
            raise RedisConnectionError("away")
        return run(self, use, idempotent=idempotent)

    monkeypatch.setattr(Pool, "run", away)
    worker.start(fetcher="basic")

    eventually(lambda: redis_client.zcard("retry") == 1)
    assert left == [0]
    worker.stop()


@pytest.mark.parametrize("where", ["in request", "before reply"])
def test_a_failure_whose_reply_was_lost_is_written_again_and_stands_in_retry_once(
    worker: Worker, redis_server: RedisServer, redis_client: redis.Redis, where: Where
) -> None:
    """Nobody knows whether the first one arrived; of a job that Redis has no more, the retry is all there is."""
    with CuttingProxy(redis_server.port) as proxy:
        worker.url = proxy.url

        def fail(number: int) -> None:
            worker.ran.append(number)
            proxy.cut(b"stat:failed", where)
            raise ValueError("boom")

        worker.declare("fail", fail)
        push_jobs(redis_client, [job_text(1, "fail")])
        worker.start(fetcher="basic")

        eventually(lambda: proxy.cuts[where] == 1 and redis_client.zcard("retry") == 1)
        worker.stop()

    assert (worker.ran, redis_client.zcard("retry")) == ([1], 1)


def test_an_async_success_whose_reply_was_lost_is_no_failure(
    worker: Worker, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """What was to be written is that the job counts: it does not run again for that."""
    with CuttingProxy(redis_server.port) as proxy:
        worker.url = proxy.url

        async def succeed(number: int) -> None:
            if not worker.ran:
                proxy.cut(b"stat:processed", "before reply")
            worker.ran.append(number)

        worker.declare("succeed", succeed, is_async=True)
        push_jobs(redis_client, [job_text(1, "succeed"), job_text(2, "succeed")])
        worker.start(fetcher="basic")

        eventually(lambda: redis_client.get("stat:processed") == b"2")
        worker.stop()

    assert (sorted(worker.ran), redis_client.zcard("retry"), redis_client.get("stat:failed")) == ([1, 2], 0, None)


def test_a_job_that_could_not_be_put_back_is_kept_and_put_back_later(
    pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, and by nobody's help."""
    monkeypatch.setattr("sidekiq_py.engine.fetch.deferred._PAUSE_SECONDS", 0.01)
    fetcher = BasicFetcher(CapsuleConfig(), pool, report=lambda error, context: None)
    units = [UnitOfWork(raw, "default", None, b"", False, 0.0) for raw in (b"first", b"second")]
    redis_client.set("queue:default", "no list")
    fetcher.requeue(units)

    redis_client.delete("queue:default")

    eventually(lambda: redis_client.llen("queue:default") == 2)
    assert redis_client.rpop("queue:default", 2) == [b"first", b"second"]
    fetcher.close()


@pytest.mark.parametrize(("part", "name"), [(basic.Outage, "over"), (basic, "note_fetched")], ids=["log", "event"])
def test_what_the_basic_fetcher_has_taken_goes_back_if_it_or_the_end_of_an_outage_cannot_be_told(
    pool: Pool, redis_client: redis.Redis, faults: Faults, part: Any, name: str
) -> None:
    """A filter or a handler of the program's log may raise. Redis no longer had the job."""
    fetcher = BasicFetcher(CapsuleConfig(), pool, report=lambda error, context: None)
    redis_client.lpush("queue:default", "job")
    faults.put(part, name, SystemExit())

    with pytest.raises(SystemExit):
        fetcher.take()

    assert redis_client.lrange("queue:default", 0, -1) == [b"job"]
    fetcher.close()


def test_what_cannot_be_put_back_before_the_end_is_named(
    pool: Pool, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """There is nobody left to try again."""
    fetcher = BasicFetcher(CapsuleConfig(), pool, report=lambda error, context: None)
    redis_client.set("queue:default", "no list")
    fetcher.requeue([UnitOfWork(b"job", "default", None, b"", False, 0.0)])

    fetcher.close()

    assert "lost 1 job, because the basic fetcher keeps no copy in Redis" in caplog.text


def test_a_job_that_was_revoked_in_the_buffer_is_noticed(pool: Pool, redis_client: redis.Redis) -> None:
    """Its fetch was before."""
    noticed: list[Any] = []
    ownership = Ownership("me:1:abc", ["default"], 30)
    fetcher = ReliableFetcher(
        CapsuleConfig(), Config(), pool, ownership, report=lambda error, context: None, on_notices=noticed.append
    )
    push(redis_client, '{"class":"Report","args":[],"jid":"a"}')
    fill(fetcher, 1)
    fetcher._buffer.jobs[0].fetched_at = 0.0

    revoked.revoke(pool, ["a"], now=now_seconds(), kept_seconds=60)
    unit = fetcher.take()

    assert unit is not None
    assert noticed[-1][1:] == [b"a"]
    fetcher.close()


def test_all_jobs_that_wait_in_the_buffer_are_asked_about_at_once(pool: Pool, redis_client: redis.Redis) -> None:
    """One request for each of them took longer than the jobs, where a shortage of CPU had kept them waiting."""
    noticed: list[Any] = []
    ownership = Ownership("me:1:abc", ["default"], 30)
    fetcher = ReliableFetcher(
        CapsuleConfig(), Config(), pool, ownership, report=lambda error, context: None, on_notices=noticed.append
    )
    push(redis_client, *(f'{{"class":"Report","args":[],"jid":"{jid}"}}' for jid in "abc"))
    fill(fetcher, 3)
    for unit in fetcher._buffer.jobs:
        unit.fetched_at = 0.0
    last = fetcher._buffer.jobs[-1]

    revoked.revoke(pool, ["c"], now=now_seconds(), kept_seconds=60)
    requests = len(noticed)
    fetcher.take()

    assert noticed[-1][1:] == [b"c"]
    assert last.notices_at > 0
    # Also on a machine that has taken long for these lines.
    last.notices_at = inf
    fetcher._buffer.jobs.popleft()
    assert fetcher.take() is last
    assert len(noticed) == requests + 1
    fetcher.close()


def test_ends_that_are_written_one_by_one_leave_nothing_behind(redis_client: redis.Redis, worker: Worker) -> None:
    """Each job leaves its owner's table, which would grow otherwise."""
    worker.declare("fine", lambda _: None).decide_outcome = lambda attempt: Outcome(
        "done", attempt.payload, vital=(("HINCRBY", "ended", "n", 1),)
    )
    push_jobs(redis_client, [job_text(n, "fine") for n in range(20)])
    worker.start()

    eventually(lambda: redis_client.hget("ended", "n") == b"20")
    assert worker.launcher is not None
    owner = worker.launcher.parts.ownership.current
    eventually(lambda: not owner.units)
