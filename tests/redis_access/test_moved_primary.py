"""What the links of a process do when sentinels have replaced the primary, whichever database they use."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from redis.connection import AbstractConnection

from sidekiq_py.errors import RedisConnectionError
from sidekiq_py.redis_access.connection.connections import PrimaryFinder
from sidekiq_py.redis_access.connection.link import Link, pack_command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.async_pool import AsyncPool
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SERVICE, Sentinel
from tests.support.waiting import eventually


def port_of(link: Link) -> int:
    """The port of the server that answers."""
    return int(link.command("CONFIG", "GET", "port")[1])


class FixedFinder(PrimaryFinder):
    """Its sentinel always names the same server."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(RedisSettings("redis+sentinel://127.0.0.1:1/of-two-minds/0"))
        self._server = server

    def __call__(self, timeout_seconds: float) -> AbstractConnection:
        return self._connection_to(("127.0.0.1", self._server.port), self._place()[1], timeout_seconds)


def test_sentinels_that_disagree_do_not_send_links_to_and_fro(new_redis_server: Callable[..., RedisServer]) -> None:
    """The link that was connected last, where its sentinel says, has the other one follow, once."""
    first, second = (FixedFinder(new_redis_server()) for _ in range(2))
    links = [Link(first(5), 5, first)]
    links[0].connect()
    links.append(Link(second(5), 5, second))
    links[1].connect()

    assert len({port_of(link) for _ in range(10) for link in links}) == 1
    assert [link.generation for link in links] == [2, 1]
    for link in links:
        link.close()


def test_a_link_to_a_server_that_is_away_takes_no_other_along(new_redis_server: Callable[..., RedisServer]) -> None:
    """Its sentinel has not heard yet that the primary is another one."""
    away, there = new_redis_server(), new_redis_server()
    late, right = FixedFinder(away), FixedFinder(there)
    away.stop()
    healthy = Link(right(5), 5, right)
    healthy.connect()
    link = Link(late(5), 5, late)

    with pytest.raises(RedisConnectionError):
        link.connect()

    assert port_of(healthy) == there.port
    assert healthy.generation == 1
    link.close()
    healthy.close()


def test_a_sentinel_whose_name_no_resolver_takes_is_passed_over(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """As `$RELEASE.jobs.svc` is without the variable. Python reports it with an error of its own kind."""
    primary = new_redis_server()
    with Sentinel(primary, tmp_path) as sentinel:
        url = f"redis+sentinel://.jobs.svc:26379,127.0.0.1:{sentinel.port}/{SERVICE}/0"
        finder = PrimaryFinder(RedisSettings(url))
        link = Link(finder(5), 5, finder)

        assert port_of(link) == primary.port
        link.close()


def test_a_url_of_sentinels_whose_names_no_resolver_takes_is_out_of_reach() -> None:
    """The error of a push is a RedisError, and that of a worker a sentence."""
    finder = PrimaryFinder(RedisSettings(f"redis+sentinel://.jobs.svc:26379/{SERVICE}/0"))

    with pytest.raises(RedisConnectionError, match=r"no sentinel knows a primary.*\.jobs\.svc:26379: .*label empty"):
        finder(5)


def test_a_sentinel_that_hangs_or_is_away_is_passed_over(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """It must not take a minute, nor must threads that ask at the same time lose others from the list."""
    primary = new_redis_server()
    with Sentinel(primary, tmp_path) as sentinel, socket.create_server(("127.0.0.1", 0)) as hanging:
        ports = [hanging.getsockname()[1], free_port(), sentinel.port]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        finder = PrimaryFinder(RedisSettings(f"redis+sentinel://{hosts}/{SERVICE}/0", connect_timeout_seconds=0.2))
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(finder, [5.0] * 16))

        asked = finder._sentinels.asked.sentinels

    assert {each.port for each in found} == {primary.port}  # type: ignore[attr-defined]
    assert sorted(one.connection_pool.connection_kwargs["port"] for one in asked) == sorted(ports)


def test_each_sentinel_says_why_it_names_no_primary(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """In words; redis-py shows the options of its client for each that is away."""
    away = free_port()
    with Sentinel(new_redis_server(), tmp_path) as sentinel:
        finder = PrimaryFinder(RedisSettings(f"redis+sentinel://127.0.0.1:{away},127.0.0.1:{sentinel.port}/other/0"))
        with pytest.raises(RedisConnectionError) as raised:
            finder(5.0)

    assert str(raised.value) == (
        f"no sentinel knows a primary for 'other'. 127.0.0.1:{away}: Error 111 connecting to 127.0.0.1:{away}. "
        f"Connection refused. 127.0.0.1:{sentinel.port}: It knows only {SERVICE!r}."
    )
    assert raised.value.is_advised
    assert raised.value.may_pass_at_start


def is_ordered(sentinel: Sentinel) -> bool:
    """Whether the sentinel has taken the order; it refuses while it does not yet know the replica's state."""
    try:
        sentinel.fail_over()
    except redis.ResponseError:
        return False
    return True


def test_all_links_follow_the_one_that_finds_the_primary_elsewhere(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """The old one goes on for ten seconds after an order. Jobs fetched from one and settled on the other run twice."""
    primary = new_redis_server()
    replica = new_redis_server(config={"replicaof": f"127.0.0.1 {primary.port}"})
    with replica.client() as client:
        eventually(lambda: client.info("replication")["master_link_status"] == "up")
    with Sentinel(primary, tmp_path) as sentinel:
        sentinel.wait_for_replicas()
        pools = [Pool(RedisSettings(f"{sentinel.url.removesuffix('0')}{db}")) for db in (0, 1)]
        links = [pool.new_link() for pool in (pools[0], *pools)]
        assert [port_of(link) for link in links] == [primary.port] * 3
        sockets = [link.generation for link in links]

        eventually(lambda: is_ordered(sentinel))
        first, *others = links

        def has_found_it() -> bool:
            first.close()
            return port_of(first) == replica.port

        eventually(has_found_it)

        pushing, other = others
        # As pushes do, without a look at how long it was idle.
        pushing.send_whole(pushing.pack([("CONFIG", "GET", "port")])[0])
        assert int(pushing.receive()[1]) == port_of(other) == replica.port
        assert [port_of(link) for link in links] == [replica.port] * 3
        assert [link.generation for link in others] == [before + 1 for before in sockets[1:]]
        for link in links:
            link.close()


def test_awaited_links_find_the_new_primary(new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    """They must not go on trying the old one for ever."""
    primary = new_redis_server()
    replica = new_redis_server(config={"replicaof": f"127.0.0.1 {primary.port}"})
    with replica.client() as client:
        eventually(lambda: client.info("replication")["master_link_status"] == "up")

    async def main(sentinel: Sentinel) -> None:
        pool = AsyncPool(Pool(RedisSettings(sentinel.url)))
        await pool.push([pack_command(("SET", "a", "1"))])
        eventually(lambda: is_ordered(sentinel))
        # What redis-py asks for; `get-master-addr-by-name` is a moment ahead of it.
        eventually(lambda: sentinel.client.sentinel_masters()[SERVICE]["port"] == replica.port)
        primary.stop()

        await pool.push([pack_command(("SET", "b", "2"))])
        await pool.close()

    with Sentinel(primary, tmp_path) as sentinel:
        sentinel.wait_for_replicas()
        asyncio.run(main(sentinel))

    with replica.client() as client:
        assert client.get("b") == b"2"
