"""A push when the way to Redis breaks, or the server is no longer the primary."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import PushOutcomeUnknownError, RedisConnectionError, RedisReplyError
from tests.client.conftest import Pushed
from tests.client.interposer import Exchange, Interposer, forward, forward_and_hang_up
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

Push = Callable[[str], Any]


def by_client(url: str) -> Any:
    """The client that blocks."""
    client = sidekiq.Client(url)
    try:
        return client.push({"class": "A", "args": [1]})
    finally:
        client.close()


def by_async_client(url: str) -> Any:
    """The client that is awaited."""

    async def push() -> str | None:
        async with sidekiq.AsyncClient(url) as client:
            return await client.push({"class": "A", "args": [1]})

    return asyncio.run(push())


def by_bulk(url: str) -> Any:
    """A slice of one job."""
    client = sidekiq.Client(url)
    try:
        return client.push_bulk({"class": "A", "args": [[1]]})
    finally:
        client.close()


ALL = pytest.mark.parametrize("push", [by_client, by_async_client, by_bulk])


@pytest.fixture(autouse=True)
def _pinned() -> None:
    sidekiq.configure(sidekiq_version="7")


def refuse(exchange: Exchange) -> None:
    """The server became a replica."""
    exchange.answer(b"-READONLY You can't write against a read only replica.\r\n" * 2)


@ALL
def test_what_a_former_primary_refuses_is_sent_again_on_a_fresh_connection(
    push: Push, redis_server: RedisServer, pushed: Pushed
) -> None:
    """Once, and so it stands there once."""
    with Interposer(redis_server.port, refuse, forward) as between:
        assert push(between.url)

    assert (len(pushed.queue()), between.connections) == (1, 2)


@ALL
def test_a_second_refusal_is_an_error(push: Push, redis_server: RedisServer, pushed: Pushed) -> None:
    """One more try, not many."""
    with Interposer(redis_server.port, refuse) as between, pytest.raises(RedisReplyError) as caught:
        push(between.url)

    assert (caught.value.code, between.connections) == ("READONLY", 2)
    assert "read only replica. It was refused twice and is not enqueued" in str(caught.value)
    assert pushed.queue() == []


@ALL
def test_a_job_that_is_in_its_queue_is_not_said_to_be_missing(
    push: Push, redis_server: RedisServer, pushed: Pushed
) -> None:
    """Only the name of its queue was refused, and is refused again."""

    def refuse_the_rest(exchange: Exchange) -> None:
        exchange.answer(b"-READONLY You can't write against a read only replica.\r\n")

    with (
        Interposer(redis_server.port, take_the_job_and_refuse_the_queue, refuse_the_rest) as between,
        pytest.raises(RedisReplyError, match="The jobs are enqueued, but their queue is missing"),
    ):
        push(between.url)

    assert len(pushed.queue()) == 1


def take_the_job_and_refuse_the_queue(exchange: Exchange) -> None:
    """The server became the primary between the two commands."""
    lpush = exchange.request[exchange.request.index(b"*3\r\n$5\r\nLPUSH") :]
    exchange._upstream.sendall(lpush)
    exchange.answer(b"-READONLY You can't write against a read only replica.\r\n" + exchange._upstream.recv(65536))


@ALL
def test_only_the_command_that_was_refused_is_sent_again(push: Push, redis_server: RedisServer, pushed: Pushed) -> None:
    """Or the job would be there twice."""
    with Interposer(redis_server.port, take_the_job_and_refuse_the_queue, forward) as between:
        assert push(between.url)

    assert (len(pushed.queue()), pushed.queues()) == (1, {b"default"})


def test_a_scheduled_job_stays_scheduled_when_it_is_sent_again(redis_server: RedisServer, pushed: Pushed) -> None:
    """Sidekiq 6.4.1 to 7.2 push it at once then."""

    def refuse_one(exchange: Exchange) -> None:
        exchange.answer(b"-NOREPLICAS Not enough good replicas to write.\r\n")

    with Interposer(redis_server.port, refuse_one, forward) as between:
        sidekiq.Client(between.url).push({"class": "A", "args": [], "at": 4_000_000_000})

    assert (pushed.queue(), [score for _, score in pushed.schedule()]) == ([], [4_000_000_000])


def test_a_primary_without_replicas_is_waited_for(redis_server: RedisServer, pushed: Pushed) -> None:
    """Its URL is right, so the advice is to push again, and not to give the URL of another server."""

    def refuse(exchange: Exchange) -> None:
        exchange.answer(b"-NOREPLICAS Not enough good replicas to write.\r\n")

    with (
        Interposer(redis_server.port, refuse, refuse) as between,
        pytest.raises(RedisReplyError, match=r"NOREPLICAS .* refused twice .* Push again when replicas are connected"),
    ):
        sidekiq.Client(between.url).push({"class": "A", "args": [], "at": 4_000_000_000})

    assert pushed.schedule() == []


@ALL
def test_a_lost_reply_says_that_the_job_may_be_enqueued(push: Push, redis_server: RedisServer, pushed: Pushed) -> None:
    """It is not sent again: it would then be there twice. The error names the jid."""
    with (
        Interposer(redis_server.port, forward_and_hang_up) as between,
        pytest.raises(PushOutcomeUnknownError, match="may have been enqueued") as caught,
    ):
        push(between.url)

    [raw] = pushed.queue()
    assert caught.value.jids[0].encode() in raw
    assert str(caught.value).count("the connection broke") == 1
    assert "Connection closed by server. Look up the jid" in str(caught.value)
    assert between.connections == 1


@ALL
def test_redis_out_of_reach_is_no_doubt(push: Push) -> None:
    """Nothing was sent, so nothing is enqueued."""
    with pytest.raises(RedisConnectionError, match="out of reach"):
        push("redis://127.0.0.1:1/0")


@ALL
def test_a_refusal_of_another_kind_is_raised_at_once(push: Push, new_redis_server: Callable[..., RedisServer]) -> None:
    """Memory that is full stays full: the message says what became of the job, and what to do."""
    server = new_redis_server(config={"maxmemory": "1"})

    with pytest.raises(RedisReplyError) as caught:
        push(server.url)

    assert caught.value.code == "OOM"
    assert "the job is not enqueued" in str(caught.value)
    assert "raise maxmemory" in str(caught.value)
    assert "noeviction" in str(caught.value)


@ALL
def test_a_job_whose_queue_is_no_list_is_refused_at_once(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """The name of the queue is accepted. Nothing waits for a third reply, and the job is not said to be enqueued."""
    redis_client.set("queue:default", "of another program")

    with pytest.raises(RedisReplyError) as caught:
        push(redis_server.url)

    assert caught.value.code == "WRONGTYPE"
    assert "enqueued" not in str(caught.value)


@ALL
def test_a_job_whose_queue_alone_was_refused_is_said_to_be_enqueued(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis, pushed: Pushed
) -> None:
    """As for a user who may not write to `queues`. Whoever pushes it again would run it twice."""
    rules = ("on", ">x", "~queue:*", "+@all")
    redis_client.execute_command("ACL", "SETUSER", "few", "reset", *rules)
    try:
        with pytest.raises(RedisReplyError, match="The jobs are enqueued, but their queue is missing") as caught:
            push(redis_server.url.replace("://", "://few:x@"))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "few")

    assert caught.value.code == "NOPERM"
    assert (len(pushed.queue()), pushed.queues()) == (1, set())


def test_an_idle_connection_that_the_server_has_closed_is_noticed(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """Before a job is risked on it."""
    server = new_redis_server()
    client = sidekiq.Client(server.url)
    client.push({"class": "A", "args": []})
    server.cut_connections()
    link = client.pool._free[-1]
    eventually(lambda: link.wait_readable(0))
    link.released_at -= 1

    assert client.push({"class": "A", "args": []})
    client.close()


def test_an_async_connection_that_the_server_has_closed_is_noticed(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """The loop sees the end of it even at once."""
    server = new_redis_server()

    async def push_twice() -> str | None:
        async with sidekiq.AsyncClient(server.url) as client:
            await client.push({"class": "A", "args": []})
            [links] = client._pool._loops.values()
            await asyncio.to_thread(server.cut_connections)
            while not links.free[0]._connection._reader.at_eof():
                await asyncio.sleep(0.001)
            return await client.push({"class": "A", "args": []})

    assert asyncio.run(push_twice())


def test_a_bulk_push_that_loses_a_reply_names_the_jobs_in_doubt(redis_server: RedisServer, pushed: Pushed) -> None:
    """Those of the slices before are enqueued, those after are not."""
    slices = 0

    def hang_up_at_the_second(exchange: Exchange) -> None:
        nonlocal slices
        slices += 1
        (exchange.forward if slices == 1 else exchange.forward_and_hang_up)()

    with (
        Interposer(redis_server.port, hang_up_at_the_second) as between,
        pytest.raises(PushOutcomeUnknownError) as caught,
    ):
        sidekiq.ruby_job("A").set(pool=between.url).perform_bulk([[n] for n in range(6)], batch_size=2)

    assert len(caught.value.jids) == 2
    assert len(pushed.queue()) == 4


def test_a_bad_argument_in_a_later_slice_leaves_the_connection_usable(
    configured: str, redis_client: redis.Redis
) -> None:
    """The reply that was still to come does not answer the next command."""
    job = sidekiq.ruby_job("A")

    with pytest.raises(TypeError):
        job.perform_bulk([[1], [{2}]], batch_size=1)
    job.perform_async(3)

    assert redis_client.llen("queue:default") == 2


JOB = sidekiq.ruby_job("A")
INTO_A_BATCH: dict[str, Callable[[], object]] = {
    "bulk": lambda: JOB.perform_bulk([[1], [2]]),
    "awaited": lambda: asyncio.run(JOB.aperform_async(1)),
}


@pytest.mark.parametrize("push", INTO_A_BATCH.values(), ids=INTO_A_BATCH)
def test_a_replica_that_refuses_a_push_into_a_batch_is_told_as_for_any_push(
    push: Callable[[], object], new_redis_server: Callable[..., RedisServer]
) -> None:
    """A script pushes it, and its error says what to do, too."""
    server = new_redis_server()
    sidekiq.configure(redis_url=server.url)
    with server.client() as client, sidekiq.Batch().jobs():
        client.replicaof("127.0.0.1", server.port)

        with pytest.raises(RedisReplyError, match=r"refused twice and is not enqueued.*URL of the primary") as caught:
            push()

        client.replicaof("NO", "ONE")
    assert (caught.value.code, caught.value.is_advised) == ("READONLY", True)


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_redis_that_cannot_save_says_that_the_job_is_not_enqueued(
    in_a_batch: bool, new_redis_server: Callable[..., RedisServer]
) -> None:
    """Redis's own text speaks of its settings, and not of the job."""
    server = new_redis_server()
    sidekiq.configure(redis_url=server.url)
    with server.client() as client, sidekiq.Batch().jobs() if in_a_batch else nullcontext():
        # A snapshot cannot take the place of a folder.
        (server.directory / "dump.rdb").mkdir()
        client.config_set("save", "3600 1")
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")

        with pytest.raises(RedisReplyError, match="cannot save its data, and the job is not enqueued") as caught:
            JOB.perform_async(1)

        client.config_set("save", "")
    assert (caught.value.code, caught.value.is_advised) == ("MISCONF", True)
