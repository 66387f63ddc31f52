"""A push that an extension has a say in, where the way to Redis breaks, and what is told of it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py import telemetry
from sidekiq_py.client.async_client import AsyncClient
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import PushOutcomeUnknownError
from sidekiq_py.extension import PushSlice
from tests.client.interposer import Exchange, Interposer
from tests.extension_contract.conftest import Tally
from tests.support.redis_server import RedisServer

Push = Callable[[str], Any]
ITEM = {"class": "run", "args": [1]}
BULK = {"class": "run", "args": [[1]]}


def by_client(url: str) -> Any:
    """The client that blocks."""
    client = Client(url, sidekiq_version="7.3.2")
    try:
        return client.push(ITEM)
    finally:
        client.close()


def by_bulk(url: str) -> Any:
    """A slice of one job."""
    client = Client(url, sidekiq_version="7.3.2")
    try:
        return client.push_bulk(BULK)
    finally:
        client.close()


def by_async_client(url: str) -> Any:
    """The client that is awaited."""

    async def push() -> str | None:
        async with AsyncClient(url, sidekiq_version="7.3.2") as client:
            return await client.push(ITEM)

    return asyncio.run(push())


ALL = pytest.mark.parametrize("push", [by_client, by_bulk, by_async_client])


def reply_to(exchange: Exchange) -> bytes:
    """What Redis says to one script."""
    exchange._upstream.sendall(exchange.request)
    return exchange._upstream.recv(65536)


def pass_on(exchange: Exchange) -> None:
    """A plan: do nothing of one's own."""
    exchange.answer(reply_to(exchange))


def lose_the_reply(exchange: Exchange) -> None:
    """A plan: Redis has done it, and nobody hears of it."""
    if b"EVALSHA" in exchange.request:
        pass_on(exchange)
        return
    reply_to(exchange)
    exchange._client.close()


def say_that_it_is_a_replica(exchange: Exchange) -> None:
    """A plan: the server is no primary any more."""
    exchange.answer(b"-READONLY You can't write against a read only replica.\r\n")


@pytest.fixture
def once(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension marks its pushes."""
    monkeypatch.setattr(tally, "push", lambda jobs: jobs.push_once("marks", "one"))


@pytest.fixture
def emitted() -> Iterator[list[dict[str, Any]]]:
    """What listeners to pushes are told."""
    events: list[dict[str, Any]] = []
    telemetry.attach("test", "sidekiq.push", lambda name, measurements: events.append(dict(measurements)))
    yield events
    telemetry.detach("test")


@ALL
def test_a_lost_reply_names_the_jids_in_doubt(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis, tally: Tally
) -> None:
    """It is not sent again, and whoever looks the ids up finds the jobs."""
    redis_client.script_flush()

    with Interposer(redis_server.port, lose_the_reply) as between, pytest.raises(PushOutcomeUnknownError) as caught:
        push(between.url)

    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert caught.value.jids[0].encode() in raw
    assert str(caught.value).count("may have been enqueued") == 1


@ALL
def test_a_marked_push_is_sent_again_after_a_lost_reply(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis, once: None
) -> None:
    """Also where the script had to be brought along; it stands in its queue once."""
    redis_client.script_flush()

    with Interposer(redis_server.port, lose_the_reply, pass_on) as between:
        assert push(between.url)

    assert redis_client.llen("queue:default") == 1


@ALL
def test_a_marked_push_stays_in_doubt_where_it_cannot_be_sent_again(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis, once: None
) -> None:
    """The first try has enqueued it: that the second one is refused does not say that it is not there."""
    redis_client.script_flush()
    plans = [lose_the_reply, say_that_it_is_a_replica]
    if push is by_bulk:
        # Its first connection hears that the script is not known; the tries that follow have others.
        plans = [pass_on, *plans]

    with Interposer(redis_server.port, *plans) as between, pytest.raises(PushOutcomeUnknownError):
        push(between.url)

    assert redis_client.llen("queue:default") == 1


@ALL
def test_what_a_former_primary_refuses_is_sent_again_on_a_fresh_connection(
    push: Push, redis_server: RedisServer, redis_client: redis.Redis, tally: Tally
) -> None:
    """As any other push is."""
    with Interposer(redis_server.port, say_that_it_is_a_replica, pass_on) as between:
        assert push(between.url)

    assert (redis_client.llen("queue:default"), between.connections) == (1, 2)


@ALL
def test_a_push_is_told_to_listeners_with_the_bytes_that_were_written(
    push: Push, redis_url: str, redis_client: redis.Redis, tally: Tally, emitted: list[dict[str, Any]]
) -> None:
    """What extensions have added included."""
    push(redis_url)

    [raw] = redis_client.lrange("queue:default", 0, -1)
    [event] = emitted
    assert (event["queue"], event["payloads"], event["is_scheduled"]) == ("default", [raw], False)


def test_of_a_push_that_is_stopped_listeners_are_told_nothing(
    redis_url: str, tally: Tally, monkeypatch: pytest.MonkeyPatch, emitted: list[dict[str, Any]]
) -> None:
    """Nothing was written."""

    def stop(jobs: PushSlice) -> None:
        for job in jobs:
            job.stop()

    monkeypatch.setattr(tally, "push", stop)

    assert by_client(redis_url) is None
    assert emitted == []


def test_a_misspelled_attribute_of_a_push_is_an_error(
    redis_url: str, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the extension's commands would be missing from the push, and nobody would know."""

    def misspell(jobs: Any) -> None:
        jobs.efects = [("SET", "mark", "1")]

    monkeypatch.setattr(tally, "push", misspell)

    with pytest.raises(Exception, match="efects"):
        by_client(redis_url)
