"""A Redis that closes idle connections (its setting `timeout`): nobody is to hear of it."""

from collections.abc import Callable

import pytest
import redis

from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from tests.engine.embedded_worker import Worker
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


def test_a_worker_reports_nothing_where_redis_closes_its_idle_connections(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """Lease, housekeeper and the leader's fetch each find a broken connection every time, which is no error."""
    server = new_redis_server(config={"timeout": "1"})
    client = server.client()
    worker = Worker(server.url)
    worker.hooks.on_error(lambda error, context: worker.reported.append(f"{context['context']}: {error}"))
    launcher = worker.start(beat_seconds=2.2)
    fetcher = launcher.parts.managers[0].fetcher
    assert isinstance(fetcher, ReliableFetcher)
    links = [fetcher._exchange._link, launcher.parts.lease._link, launcher.parts.housekeeper._link]
    eventually(lambda: all(link.is_open for link in links))
    before = [link.generation for link in links]

    eventually(lambda: links[0].wait_readable(0))
    # As after a change of the notices, or a queue resumed: the leader looks up, and fetches.
    fetcher.wake()
    eventually(lambda: links[0].generation > before[0])
    push_jobs(client, [job_text(1, "run")])
    eventually(lambda: worker.ran == [1])
    eventually(lambda: len(jobs_in_flight(client)) == 0)
    eventually(lambda: all(link.generation > first for link, first in zip(links, before, strict=True)))

    assert worker.reported == []
    worker.stop()
    client.close()


def close_others(client: redis.Redis) -> None:
    """As Redis does with those that are idle; when it returns, they are closed."""
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually(lambda: len(client.client_list()) == 1)


@pytest.fixture
def idle_link(link: Link, redis_client: redis.Redis) -> Link:
    """Of the shared server, which has closed it since."""
    link.command("PING")
    link._used_at = 0.0
    close_others(redis_client)
    eventually(lambda: link.wait_readable(0))
    return link


def test_a_command_goes_out_anew_where_the_connection_was_closed_while_idle(idle_link: Link) -> None:
    """It was certainly not sent before."""
    assert idle_link.command("PING") == b"PONG"


def test_a_batch_goes_out_anew_where_the_connection_was_closed_while_idle(idle_link: Link) -> None:
    """And so does a transaction."""
    assert idle_link.batch([("PING",), ("ECHO", "a")]) == [b"PONG", b"a"]


def test_a_move_is_opened_anew_where_its_connection_was_closed_while_idle(
    pool: Pool, redis_client: redis.Redis
) -> None:
    """Every processor was busy for long, and no move was open."""
    ownership = Ownership("host:1:abc", ["default"], 30)
    redis_client.hset(keys.OWNERS, ownership.current.name, ownership.current.about)
    ownership.current.published = ownership.current.about
    group = Waiters(pool, ownership, ["default"], 0.05)
    [waiter] = group._waiters
    waiter.link.connect()
    close_others(redis_client)
    eventually(lambda: waiter.link.wait_readable(0))

    group.open(())
    redis_client.lpush("queue:default", "job")

    units: list[UnitOfWork] = []
    eventually(lambda: units.extend(group.collect(None, 0.1)[0]) or units)
    assert [unit.raw for unit in units] == [b"job"]
    group.close()
