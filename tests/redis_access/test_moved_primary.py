"""What the links of a process do when sentinels have replaced the primary, whichever database they use."""

from collections.abc import Callable
from pathlib import Path

import redis

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually


def port_of(link: Link) -> int:
    """The port of the server that answers."""
    return int(link.command("CONFIG", "GET", "port")[1])


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

        assert [port_of(link) for link in others] == [replica.port] * 2
        assert [port_of(link) for link in links] == [replica.port] * 3
        assert [link.generation for link in others] == [before + 1 for before in sockets[1:]]
        for link in links:
            link.close()
