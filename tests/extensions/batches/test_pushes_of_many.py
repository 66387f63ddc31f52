"""Bulk pushes of several slices in a batch: the slices behind the first go by transactions that watch a key."""

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program, telemetry
from sidekiq_py.client import sync_client
from sidekiq_py.errors import SidekiqError
from sidekiq_py.extension import Extension, PushSlice
from sidekiq_py.extensions.batches.audit import waiting_numbers
from sidekiq_py.extensions.batches.errors import BatchClosedError, BatchDoneError, BatchGoneError
from tests.extensions.batches.conftest import Program
from tests.support.cutting_proxy import WHERES, CuttingProxy, Where
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SLICE = 100
SLICES = 4


def numbers(app: Program) -> list[int]:
    """Of the members that wait, in the order in which they were pushed."""
    return [payload["sidekiq_py_batch"][1] for payload in app.waiting()]


def transactions(client: redis.Redis) -> int:
    """How many EXEC there were since the statistics were reset."""
    return int(client.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"])


def args_with(app: Program, deed: Callable[[], object], before_slice: int) -> Iterator[list[int]]:
    """Arguments of all slices; something is done between two slices: the second of them, from 0, is made after it."""
    for number in range(SLICES * SLICE):
        if number == before_slice * SLICE:
            # The last one may still be on its way, and the check behind it.
            eventually(lambda: app.client.llen("queue:default") == before_slice * SLICE)
            deed()
        yield [number]


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("at", [None, 4_000_000_000])
@pytest.mark.parametrize("track", [False, True])
def test_a_slice_may_be_larger_than_a_script(app: Program, kind: str, at: int | None, *, track: bool) -> None:
    """As outside of a batch."""
    batch = sidekiq.Batch(track=track)
    args = [[number] for number in range(9000)]

    with batch.jobs():
        if kind == "plain":
            app.deed.perform_bulk(args, batch_size=8000, at=at)
        else:
            asyncio.run(app.deed.aperform_bulk(args, batch_size=8000, at=at))

    assert batch.status().pending == 9000
    assert app.client.llen("queue:default") + app.client.zcard("schedule") == 9000


def test_slices_behind_the_first_go_by_transactions(app: Program) -> None:
    """Each job is a member with a number of its own, and the batch counts them all."""
    batch = sidekiq.Batch()
    app.client.config_resetstat()

    with batch.jobs():
        jids = app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    assert transactions(app.client) == SLICES - 1
    assert len(set(numbers(app))) == SLICES * SLICE
    assert [payload["jid"] for payload in app.waiting()] == jids
    assert [payload["args"] for payload in app.waiting()] == [[number] for number in range(SLICES * SLICE)]
    status = batch.status()
    assert (status.total, status.pending, status.openers) == (SLICES * SLICE, SLICES * SLICE, [])


def test_awaited_pushes_go_by_transactions_too(app: Program) -> None:
    """The slices are sent by a thread, as `perform_bulk` sends them."""
    batch = sidekiq.Batch()
    app.client.config_resetstat()

    async def push() -> list[str | None]:
        async with batch.jobs():
            return await app.deed.aperform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    jids = asyncio.run(push())

    assert transactions(app.client) == SLICES - 1
    assert [payload["jid"] for payload in app.waiting()] == jids
    assert sorted(numbers(app)) == list(range(SLICES * SLICE))
    assert batch.status().total == SLICES * SLICE


def test_an_awaited_push_that_is_cancelled_leaves_whole_slices(app: Program) -> None:
    """The batch stays open, as nobody knows whether all jobs were added, and the connection is fit for others."""
    batch = sidekiq.Batch()

    async def push() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with batch.jobs():
            await app.deed.aperform_bulk(args_with(app, task.cancel, 2), batch_size=SLICE)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(push())

    status = batch.status()
    assert (status.state, status.total) == ("open", len(app.waiting()))
    assert status.total in (2 * SLICE, 3 * SLICE)
    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)
    assert batch.status().total == status.total + SLICES * SLICE


def test_scripts_are_few(app: Program) -> None:
    """The check comes once for all slices, and each block of numbers is twice as long as the last one."""
    with sidekiq.Batch().jobs():
        app.deed.perform_bulk([[number] for number in range(2 * SLICE)], batch_size=SLICE)  # the server has the scripts
    app.client.config_resetstat()

    with sidekiq.Batch().jobs():
        app.deed.perform_bulk([[number] for number in range(15 * SLICE)], batch_size=SLICE)

    assert transactions(app.client) == 14
    calls = app.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    # Opening, the first slice, its block and three more, the check, leaving.
    assert calls == 8


def test_the_bytes_are_those_of_a_push_outside(app: Program) -> None:
    """With the key behind all others."""
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_bulk([["100 %d"]] * SLICES * SLICE, batch_size=SLICE)
    app.deed.perform_bulk([["100 %d"]])

    *many, outside = app.waiting()
    assert {tuple(payload) for payload in many} == {(*outside, "sidekiq_py_batch")}
    assert {payload["args"][0] for payload in many} == {"100 %d"}


def test_all_jobs_run_and_the_callbacks_follow(app: Program, worker: object) -> None:
    """Also while the worker ends the first of them before the last are pushed."""
    batch = sidekiq.Batch().on("success", app.callback)

    with batch.jobs():
        app.deed.perform_bulk([["ok", number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    status = batch.wait(30, until="success")
    assert (status.total, status.pending, len(app.runs)) == (SLICES * SLICE, 0, SLICES * SLICE)


def test_jobs_may_be_added_between_the_slices(app: Program) -> None:
    """Even if they are written before a slice that got its numbers before them, as this handler's are."""
    batch = sidekiq.Batch()
    has_added = []

    def add_more(name: str, measurements: dict[str, Any]) -> None:
        if not has_added:
            has_added.append(name)
            app.deed.perform_bulk([["more"]] * 2 * SLICE)

    telemetry.attach("more jobs", ["sidekiq.push"], add_more)
    try:
        with batch.jobs():
            app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)
    finally:
        telemetry.detach("more jobs")

    assert sorted(numbers(app)) == sorted(waiting_numbers(batch._client.pool, batch.bid))
    assert batch.status().total == len(set(numbers(app))) == (SLICES + 2) * SLICE


@pytest.mark.parametrize("before_slice", [1, 2, 3])
def test_a_batch_that_is_closed_meanwhile_takes_no_more_slices(app: Program, before_slice: int) -> None:
    """Though the check of the next one, which goes along with the last, had said yes."""
    batch = sidekiq.Batch()

    with pytest.raises(BatchClosedError), batch.jobs():
        app.deed.perform_bulk(args_with(app, batch.close, before_slice), batch_size=SLICE)

    assert len(numbers(app)) == before_slice * SLICE
    assert batch.status().total == before_slice * SLICE


def test_a_batch_that_is_deleted_meanwhile_stays_gone(app: Program) -> None:
    """No key of it comes back, and none of the jobs that are left is pushed."""
    batch = sidekiq.Batch()

    with pytest.raises(BatchGoneError), batch.jobs():
        app.deed.perform_bulk(args_with(app, batch.delete, 3), batch_size=SLICE)

    assert len(app.waiting()) == 3 * SLICE
    assert app.client.keys(f"sidekiq_py:batch:{batch.bid}*") == []


def test_a_batch_that_expires_meanwhile_stays_gone(app: Program) -> None:
    """The key that is watched ends before the batch does."""
    batch = sidekiq.Batch()

    def expire() -> None:
        for key in app.client.keys(f"sidekiq_py:batch:{batch.bid}*"):
            app.client.pexpire(key, 1)
        # Nobody asks for them meanwhile, which would take them away.
        now = app.client.time()
        eventually(lambda: app.client.time() > (now[0], now[1] + 5000) or app.client.time()[0] > now[0])

    with pytest.raises(BatchGoneError), batch.jobs():
        app.deed.perform_bulk(args_with(app, expire, 3), batch_size=SLICE)

    assert app.client.keys(f"sidekiq_py:batch:{batch.bid}*") == []


def test_what_permits_transactions_ends_with_the_block(app: Program) -> None:
    """While it lasts it ends before the batch, and within a minute."""
    batch = sidekiq.Batch(expires_in=30)
    seen: list[int] = []

    def look() -> None:
        [key] = app.client.keys(f"sidekiq_py:batch:{batch.bid}:pushes:*")
        seen.append(int(app.client.ttl(key)))

    with batch.jobs():
        app.deed.perform_bulk(args_with(app, look, 3), batch_size=SLICE)

    assert 0 < seen[0] < 30
    assert app.client.keys(f"sidekiq_py:batch:{batch.bid}:pushes:*") == []


def test_a_queue_that_is_no_list_is_told_by_the_script(app: Program) -> None:
    """Nothing is counted that was not pushed."""
    batch = sidekiq.Batch()

    def spoil() -> None:
        app.client.delete("queue:default")
        app.client.set("queue:default", "text")

    with pytest.raises(SidekiqError, match="WRONGTYPE"), batch.jobs():
        app.deed.perform_bulk(args_with(app, spoil, 1), batch_size=SLICE)

    assert batch.status().total == SLICE


def test_a_connection_watches_nothing_when_others_use_it(app: Program) -> None:
    """A transaction of theirs would be dropped without a word."""
    batch = sidekiq.Batch()
    pool = sync_client.current().pool

    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)
        [key] = app.client.keys(f"sidekiq_py:batch:{batch.bid}:pushes:*")
        app.client.hset(key, "at", 1)
        replies = pool.run(lambda link: link.transaction([("SET", "mine", "1")]))

    assert replies == [b"OK"]
    assert app.client.get("mine") == b"1"


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("needle", [b"\r\nEXEC\r\n", b"may_push", b"\r\nMULTI\r\n", b"\r\nUNWATCH\r\n"])
def test_a_broken_connection_adds_no_job_twice(
    app: Program, redis_server: RedisServer, needle: bytes, where: Where
) -> None:
    """Before the transaction, in it, behind it, or before its reply."""
    with CuttingProxy(redis_server.port) as proxy:
        program.configure(redis_url=proxy.url, sidekiq_version="7")
        batch = sidekiq.Batch()
        with batch.jobs():
            arm = lambda: proxy.cut(needle, where)  # noqa: E731
            # The check is made once, before the first transaction.
            app.deed.perform_bulk(args_with(app, arm, 1 if needle == b"may_push" else 2), batch_size=SLICE)

        assert proxy.cuts[where] == 1
        assert batch.status().total == SLICES * SLICE
        sync_client.current().close()
    assert sorted(payload["args"][0] for payload in app.waiting()) == list(range(SLICES * SLICE))
    assert len(set(numbers(app))) == SLICES * SLICE


@pytest.mark.parametrize("where", ["before reply", "in reply"])
@pytest.mark.parametrize("is_bulk", [False, True])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_jobs_added_before_a_lost_reply_is_noticed_have_no_slice_pushed_twice(
    app: Program, redis_server: RedisServer, where: Where, *, is_awaited: bool, is_bulk: bool
) -> None:
    """They are added by the generator of a bulk push, whose last slice is sent again only afterwards."""
    more = 2 * SLICE if is_bulk else 1

    def add_more() -> None:
        if is_bulk:
            app.deed.perform_bulk([["more"]] * more, batch_size=SLICE)
        else:
            app.deed.perform_async("more")

    with CuttingProxy(redis_server.port) as proxy:
        program.configure(redis_url=proxy.url, sidekiq_version="7")
        batch = sidekiq.Batch()

        def args() -> Iterator[list[int]]:
            for number, one in enumerate(args_with(app, add_more, 2)):
                if number == SLICE:
                    proxy.cut(b"\r\nEXEC\r\n", where)
                yield one

        async def push() -> None:
            async with batch.jobs():
                await app.deed.aperform_bulk(args(), batch_size=SLICE)

        if is_awaited:
            asyncio.run(push())
        else:
            with batch.jobs():
                app.deed.perform_bulk(args(), batch_size=SLICE)
        sync_client.current().close()

    assert proxy.cuts[where] == 1
    assert sorted(numbers(app)) == sorted(waiting_numbers(batch._client.pool, batch.bid))
    assert len(numbers(app)) == len(set(numbers(app))) == SLICES * SLICE + more
    status = batch.status()
    assert (status.total, status.pending) == (SLICES * SLICE + more, SLICES * SLICE + more)


@pytest.mark.parametrize("count", [1, 2 * SLICE])
def test_a_transaction_that_arrives_late_does_nothing(app: Program, count: int) -> None:
    """Its slice was sent again meanwhile, by a script or in another transaction."""
    batch = sidekiq.Batch()
    late = app.client.connection_pool.make_connection()

    def ask(*words: str) -> object:
        late.send_command(*words)
        return late.read_response()

    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)
        # What a client had sent before its connection broke: it watches, and its EXEC is on the way.
        [key] = app.client.keys(f"sidekiq_py:batch:{batch.bid}:pushes:*")
        ask("WATCH", key)
        app.deed.perform_bulk([[number] for number in range(count)], batch_size=SLICE)
        ask("MULTI")
        ask("INCR", "came late")
        done = ask("EXEC")
    late.disconnect()

    assert done is None
    assert app.client.get("came late") is None


def test_under_a_namespace_slices_go_by_transactions(app: Program, redis_url: str) -> None:
    """Every key begins with it."""
    program.configure(redis_url=redis_url, sidekiq_version="6", namespace="myapp")
    app.client.config_resetstat()
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    assert transactions(app.client) == SLICES - 1
    assert batch.status().total == app.client.llen("myapp:queue:default") == SLICES * SLICE
    assert {key.split(b":")[0] for key in app.client.keys("*")} == {b"myapp"}


def test_a_user_who_may_not_watch_pushes_by_scripts(app: Program, redis_url: str) -> None:
    """The jobs are pushed all the same."""
    app.client.execute_command("ACL", "SETUSER", "unwatching", "on", ">secret", "~*", "&*", "+@all", "-watch")
    try:
        program.configure(redis_url=redis_url.replace("://", "://unwatching:secret@"), sidekiq_version="7")
        app.client.config_resetstat()
        batch = sidekiq.Batch()
        with batch.jobs():
            app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)
        sync_client.current().close()
    finally:
        app.client.execute_command("ACL", "DELUSER", "unwatching")

    assert transactions(app.client) == 0
    assert sorted(numbers(app)) == list(range(SLICES * SLICE))


def test_two_threads_of_one_block_push_at_a_time(app: Program) -> None:
    """Each slice of one has the other's check begin anew; none is pushed twice or left out."""
    batch = sidekiq.Batch()
    with batch.jobs():
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(app.deed.perform_bulk, [[one, number] for number in range(SLICES * SLICE)]),
                kwargs={"batch_size": SLICE},
            )
            for one in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert batch.status().total == len(set(numbers(app))) == 2 * SLICES * SLICE
    wanted = itertools.product(range(2), range(SLICES * SLICE))
    assert sorted(tuple(payload["args"]) for payload in app.waiting()) == sorted(wanted)


def test_what_another_extension_writes_goes_along_with_each_slice(app: Program) -> None:
    """A transaction has only what the batch writes, so these slices go by scripts."""

    class Counter(Extension):
        name = "counter"
        phase = "count"
        payload_keys: ClassVar[Mapping[str, str]] = {"counted": "it is not counted"}

        def wants_pushes(self) -> bool:
            return True

        def push(self, jobs: PushSlice) -> None:
            jobs.write(("HINCRBY", "counted", "jobs", len(jobs)))

    program.use(Counter())
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    assert app.client.hget("counted", "jobs") == str(SLICES * SLICE).encode()
    assert batch.status().total == len(set(numbers(app))) == SLICES * SLICE


def test_jobs_at_which_another_extension_has_looked_are_members_too(app: Program) -> None:
    """It had objects made of them, which the batch's key is added to."""

    class Looker(Extension):
        name = "a looker"
        phase = "count"
        payload_keys: ClassVar[Mapping[str, str]] = {"looked": "it is not looked at"}

        def wants_pushes(self) -> bool:
            return True

        def push(self, jobs: PushSlice) -> None:
            assert [job.queue for job in jobs] == ["default"] * len(jobs)

    program.use(Looker())
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_async(0)
        app.deed.perform_bulk([[number] for number in range(1, SLICE)])

    assert batch.status().total == len(set(numbers(app))) == SLICE


def test_a_slice_that_middleware_spreads_over_queues_goes_by_a_script(app: Program) -> None:
    """A transaction pushes into the one queue that was looked at."""

    def spread(job: object, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        payload["queue"] = "odd" if payload["args"][0] % 2 else "even"
        return call_next()

    sidekiq.client_middleware.add(spread)
    batch = sidekiq.Batch()

    with batch.jobs():
        app.deed.perform_bulk([[number] for number in range(SLICES * SLICE)], batch_size=SLICE)

    assert [len(app.waiting(queue)) for queue in ("odd", "even")] == [SLICES * SLICE / 2] * 2
    assert batch.status().total == SLICES * SLICE


def test_a_set_of_queues_that_is_none_is_told_by_the_script(app: Program) -> None:
    """A transaction would push the jobs, and then fail all the same."""
    batch = sidekiq.Batch()

    def spoil() -> None:
        app.client.delete("queues")
        app.client.set("queues", "text")

    with pytest.raises(SidekiqError, match="WRONGTYPE"), batch.jobs():
        app.deed.perform_bulk(args_with(app, spoil, 1), batch_size=SLICE)

    assert batch.status().total == len(app.waiting()) == SLICE


def test_a_push_that_is_broken_off_leaves_no_reply_to_others(app: Program) -> None:
    """Ctrl-C comes before the last slice's reply is read, which must not answer the next command."""

    def args() -> Iterator[list[int]]:
        for number in range(3 * SLICE):
            yield [number]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), sidekiq.Batch().jobs():
        app.deed.perform_bulk(args(), batch_size=SLICE)

    assert sync_client.current().pool.command("ECHO", "mine") == b"mine"


def test_a_task_that_pushes_after_the_end_of_its_batch_is_told_so(app: Program) -> None:
    """Not only that the block was left: there is no batch to be opened again."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        task = contextvars.copy_context()
    with sidekiq.embed(concurrency=1):
        batch.wait(10, until="success")

    with pytest.raises(BatchDoneError):
        task.run(app.deed.perform_async, "late")
