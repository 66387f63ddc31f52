"""The client that is awaited, on real loops."""

import asyncio
import gc
import inspect
import json
import os
import resource
import time
import warnings
from collections.abc import Awaitable
from contextlib import ExitStack

import pytest
import redis
import redis.asyncio

import sidekiq_py as sidekiq
from sidekiq_py.errors import ConfigError, PushOutcomeUnknownError, RedisConnectionError, RedisError
from sidekiq_py.redis_access.connection.adopted_pool import AdoptedPool
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.client.conftest import Pushed, masked
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("configured")


def test_every_awaited_call_leaves_what_the_other_one_leaves(pushed: Pushed) -> None:
    """Byte for byte but for jid and times."""
    job = sidekiq.ruby_job("A", queue="q", retry=2)

    async def push() -> None:
        await job.aperform_async(1)
        await job.set(tags=["x"]).aperform_async(1)
        await job.aperform_bulk([[1], [2]])
        await sidekiq.AsyncClient().push({"class": "B", "args": [], "queue": "q", "x": 1})
        await sidekiq.AsyncClient().push_bulk({"class": "B", "args": [[1]], "queue": "q"})
        await job.aperform_at(4e9, 1)
        await job.aperform_in(4e9, 1)

    asyncio.run(push())
    awaited = [masked(raw) for raw in pushed.queue("q") + [raw for raw, _ in pushed.schedule()]]
    pushed._client.flushall()
    job.perform_async(1)
    job.set(tags=["x"]).perform_async(1)
    job.perform_bulk([[1], [2]])
    sidekiq.Client().push({"class": "B", "args": [], "queue": "q", "x": 1})
    sidekiq.Client().push_bulk({"class": "B", "args": [[1]], "queue": "q"})
    job.perform_at(4e9, 1)
    job.perform_in(4e9, 1)

    assert awaited == [masked(raw) for raw in pushed.queue("q") + [raw for raw, _ in pushed.schedule()]]


def test_one_client_serves_one_loop_after_the_other(pushed: Pushed) -> None:
    """Each loop has connections of its own, which end with it: no warning of one that was left open."""
    client = sidekiq.AsyncClient()

    for _ in range(3):
        asyncio.run(client.push({"class": "A", "args": []}))

    assert len(pushed.queue()) == 3


def test_a_loop_that_ends_leaves_no_connection_behind(redis_client: redis.Redis) -> None:
    """The server sees none more than before."""
    before = len(redis_client.client_list(_type="normal"))

    asyncio.run(sidekiq.ruby_job("A").aperform_async())

    # Those that an earlier test has just closed may have been counted.
    assert eventually(lambda: len(redis_client.client_list(_type="normal")) <= before)


def test_a_push_works_with_more_than_a_thousand_files_open(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a web server with many clients: `select` refuses a descriptor above 1023."""
    monkeypatch.setattr("sidekiq_py.redis_access.job_path.async_pool.SUSPECT_IDLE_SECONDS", 0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))

    async def push() -> None:
        client = sidekiq.AsyncClient()
        await client.push({"class": "A", "args": [1]})
        await client.push({"class": "A", "args": [2]})

    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            files.enter_context(open(os.devnull))
        asyncio.run(push())

    assert len(pushed.queue()) == 2


def test_loops_that_are_only_closed_leave_no_connections_behind(redis_client: redis.Redis) -> None:
    """Without `shutdown_asyncgens`, as where a program makes a loop for each call."""
    client = sidekiq.AsyncClient()
    before = len(redis_client.client_list(_type="normal"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(5):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(client.push({"class": "A", "args": []}))
            loop.close()
        asyncio.run(client.push({"class": "A", "args": []}))
        del loop
        gc.collect()

    assert eventually(lambda: len(redis_client.client_list(_type="normal")) <= before)


def test_many_pushes_side_by_side(pushed: Pushed) -> None:
    """Each has a connection to itself while it waits."""
    job = sidekiq.ruby_job("A")

    async def push() -> list[str | None]:
        return await asyncio.gather(*(job.aperform_async(n) for n in range(50)))

    jids = asyncio.run(push())

    assert len(set(jids)) == len(pushed.queue()) == 50


def test_calls_beyond_the_pool_s_size_wait_their_turn(redis_client: redis.Redis, pushed: Pushed) -> None:
    """However many calls a loop makes at once, Redis sees no more connections than the pool may have."""
    before = redis_client.info("stats")["total_connections_received"]

    async def push() -> None:
        await asyncio.gather(*(sidekiq.ruby_job("A").aperform_async(n) for n in range(500)))

    asyncio.run(push())

    assert len(pushed.queue()) == 500
    assert redis_client.info("stats")["total_connections_received"] - before <= 10


def _one_link(redis_url: str, socket_timeout_seconds: float = 5) -> Pool:
    return Pool(RedisSettings(redis_url, pool_size=1, socket_timeout_seconds=socket_timeout_seconds))


def test_waiting_calls_are_served_in_the_order_in_which_they_came(redis_url: str, pushed: Pushed) -> None:
    """Also those behind a call that is cancelled while it waits."""

    async def push() -> None:
        async with sidekiq.AsyncClient(pool=_one_link(redis_url)) as client:
            calls = [asyncio.create_task(client.push({"class": "A", "args": [n]})) for n in range(20)]
            await asyncio.sleep(0)
            for call in calls[5:10]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await client.push({"class": "A", "args": [20]})

    asyncio.run(push())

    assert [json.loads(raw)["args"][0] for raw in pushed.queue()] == [*range(5), *range(10, 21)]


def test_calls_behind_a_redis_that_hangs_do_not_time_out_one_after_the_other(redis_server: RedisServer) -> None:
    """Whoever has waited as long as a reply may take, and saw nobody get one, is told that nothing was sent."""

    async def push() -> list[object]:
        async with sidekiq.AsyncClient(pool=_one_link(redis_server.url, 0.3)) as client:
            await client.push({"class": "A", "args": []})
            calls = [client.push({"class": "A", "args": []}) for _ in range(100)]
            with redis_server.paused():
                async with asyncio.timeout(15):
                    return await asyncio.gather(*calls, return_exceptions=True)

    first, *others = asyncio.run(push())

    assert isinstance(first, PushOutcomeUnknownError)
    assert {type(error) for error in others} == {RedisConnectionError}
    assert "nothing was sent" in str(others[0])


def test_a_cancelled_push_gives_no_connection_back_with_a_reply_to_come(
    redis_server: RedisServer, pushed: Pushed
) -> None:
    """The next push reads its own reply."""

    async def push() -> str | None:
        async with sidekiq.AsyncClient() as client:
            await client.push({"class": "A", "args": [0]})
            with redis_server.paused(), pytest.raises(TimeoutError):
                await asyncio.wait_for(client.push({"class": "A", "args": [1]}), 0.05)
            return await client.push({"class": "A", "args": [2]})

    jid = asyncio.run(push())

    assert json.loads(pushed.queue()[-1])["jid"] == jid


def test_a_block_of_via_holds_for_awaited_calls(redis_url: str, pushed: Pushed) -> None:
    """Per task, as context variables are."""
    other = redis_url.removesuffix("/0") + "/1"

    async def push() -> None:
        with sidekiq.AsyncClient.via(other):
            await sidekiq.ruby_job("A").aperform_async()

    asyncio.run(push())

    assert pushed.queue() == []


def test_a_pool_of_redis_py_s_asyncio_half_is_taken_over(redis_url: str, pushed: Pushed) -> None:
    """Its address and credentials, also for the calls that block."""
    pool = redis.asyncio.ConnectionPool.from_url(redis_url)

    asyncio.run(sidekiq.AsyncClient(pool=pool).push({"class": "A", "args": []}))
    sidekiq.Client(pool=pool).push({"class": "A", "args": []})

    assert len(pushed.queue()) == 2


def test_a_pool_s_options_for_its_own_connections_stay_with_it(redis_url: str, pushed: Pushed) -> None:
    """redis-py's pools follow a server that moves. Awaited connections of redis-py 7 and 8.0 refuse these options."""
    given = redis.Redis.from_url(redis_url, protocol=3).connection_pool
    pool = AdoptedPool(given)

    asyncio.run(sidekiq.AsyncClient(pool=pool).push({"class": "A", "args": []}))

    assert len(pushed.queue()) == 1
    assert not [name for name in pool.connection_options if name.startswith(("maint_", "orig_"))]


@pytest.mark.parametrize("is_awaited", [False, True], ids=["blocking", "awaited"])
def test_a_client_of_redis_py_brings_its_time_limit(redis_server: RedisServer, *, is_awaited: bool) -> None:
    """A web request that would rather fail than wait; without one it would be the usual five seconds."""
    given = redis.Redis.from_url(redis_server.url, socket_timeout=0.3, socket_connect_timeout=0.3)

    def push() -> None:
        client = sidekiq.AsyncClient(pool=given) if is_awaited else sidekiq.Client(pool=given)
        pushed = client.push({"class": "A", "args": []})
        if inspect.isawaitable(pushed):
            asyncio.run(_wait_for(pushed))

    with redis_server.paused():
        before = time.monotonic()
        with pytest.raises(RedisError):
            push()

        assert time.monotonic() - before < 3


async def _wait_for(pushed: Awaitable[object]) -> None:
    await pushed


@pytest.mark.parametrize("given", [None, 0, "5"])
def test_what_is_no_time_limit_leaves_the_usual_one(redis_url: str, given: object) -> None:
    """redis-py would wait for ever without."""
    pool = AdoptedPool(redis.ConnectionPool.from_url(redis_url, socket_timeout=given))

    assert pool.settings.socket_timeout_seconds == RedisSettings().socket_timeout_seconds


def test_by_unix_socket(redis_server: RedisServer, pushed: Pushed) -> None:
    """As from any URL."""
    asyncio.run(sidekiq.AsyncClient(redis_server.socket_url).push({"class": "A", "args": []}))

    assert len(pushed.queue()) == 1


def test_a_pool_that_cannot_be_awaited_is_refused(redis_url: str) -> None:
    """With the way round it."""

    class OwnConnection(redis.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=OwnConnection)

    with pytest.raises(ConfigError, match="cannot be awaited"):
        asyncio.run(sidekiq.AsyncClient(pool=AdoptedPool(pool)).push({"class": "A", "args": []}))


def test_an_option_that_a_url_cannot_have_is_named(redis_url: str) -> None:
    """As by the client that blocks."""

    async def push() -> None:
        async with sidekiq.AsyncClient(f"{redis_url}?nope=1") as client:
            await client.push({"class": "A", "args": []})

    with pytest.raises(ConfigError, match="redis:// has no option nope"):
        asyncio.run(push())
