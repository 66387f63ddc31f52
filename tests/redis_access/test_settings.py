"""URLs of Redis: what is refused before anything connects."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from sidekiq_py.client.async_client import AsyncClient
from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.adopted_pool import AdoptedPool
from sidekiq_py.redis_access.connection.connections import is_same_database, sentinels_of
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings, place
from tests.support.redis_server import RedisServer


@pytest.mark.parametrize("path", ["", "/", "/0", "/15", "/0/", "/0\n", "/3 ", "/0?db=1", "?db=2", "/0#note"])
@pytest.mark.parametrize("host", ["localhost:6379", "user:pass%2Fword@redis", "[::1]:6379"])
def test_a_database_is_a_number(path, host):
    """Or absent; environment variables may have a newline at their end."""
    RedisSettings(f"redis://{host}{path}")


@pytest.mark.parametrize("path", ["/O", "/production", "/0x", "/:0"])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_database_that_is_not_a_number_is_refused(path, scheme):
    """The client would take database 0 instead, where no worker looks for the jobs."""
    with pytest.raises(ConfigError, match="must be the number of a database"):
        RedisSettings(f"{scheme}://localhost:6379{path}")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hush/hush@localhost:6379/0",
        "redis://hush/hush@localhost:6379/0",
        "redis://:12/hush@localhost",
        "redis://:hush#x@host/0",
        "redis://:12#hush@localhost/0",
        "rediss://u:hush?x@host:1/0",
        "redis://:12?hush@localhost",
        "redis://user:12?hush@host:6379/0",
        "redis://hush?hush@host:6379/0",
        "redis://user:12?hush=hush&hush=@host/0",
        "redis://user:12@?hush@host:6379/0",
        "redis://:?hush@localhost",
        "redis://user:hush[x@host/0",
        "redis+sentinel://:12?hush@one:26379,two/mymaster/0",
        "redis+sentinel://:hush/hush@one:26379,two/mymaster/0",
        "redis+sentinel://:hush[hush@one:26379,two/mymaster/0",
        "unix://:hush?hush@/run/redis.sock",
        "unix://:hush/hush@/run/redis.sock?db=1",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_not_printed(url):
    """The part with the host ends at that character, and a number before it would be the port of another server."""
    with pytest.raises(ConfigError, match="In a password, write %40 for @, %2F for /") as refused:
        RedisSettings(url)

    assert "hush" not in str(refused.value)
    assert "a character before the @ ends the password" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host?password=hu@sh",
        "redis://?db=1&password=hu@sh/x?y",
        "redis://host:6379/0?client_name=me@company",
        "rediss://host?ssl_ca_certs=/etc/ssl/a@b.pem",
        "redis+sentinel://one:26379,two:26379/mymaster?sentinel_username=me@company&sentinel_password=hu@sh",
        "unix:///run/a@b.sock?db=1&password=hu@sh",
        "unix://me:hush@/run/a@b.sock",
    ],
)
def test_an_at_sign_may_be_in_an_option_or_the_path_of_a_socket(url):
    """Only behind the host's part of a URL it tells that a password was cut off there."""
    assert RedisSettings(url).url == url


def test_other_signs_in_a_password_work_as_they_are_and_all_work_encoded():
    """Ruby needs most of them encoded."""
    password = "hu@sh:hu sh%zz%+&=;!$*(),\"'<>|^`{}~hüsh€"
    with RedisServer() as server, redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser(
            "me", enabled=True, passwords=[f"+{password}", f"+{password}/?#[]"], keys="*", categories=["+@all"]
        )

        for written in (password, quote(f"{password}/?#[]", safe="")):
            url = f"redis://me:{written}@127.0.0.1:{server.port}/0"
            assert Client(url).push({"class": "R", "args": []})
            assert asyncio.run(AsyncClient(url).push({"class": "R", "args": []}))


@pytest.mark.parametrize("port", ["99999", "redis", "6379,other:6379"])
def test_a_port_that_is_not_a_number_is_refused(port):
    """As when several servers are given, or a variable was not filled in."""
    with pytest.raises(ConfigError, match="the port must be a number from 0 to 65535"):
        RedisSettings(f"redis://localhost:{port}/0")


def test_a_word_before_the_host_is_the_password():
    """As for Ruby's redis-client and redis-cli, which may share the REDIS_URL; redis-py takes it for a user."""
    with RedisServer() as server, redis.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", "hush")
        url = f"redis://hush@127.0.0.1:{server.port}/0"

        assert Client(url).push({"class": "R", "args": []})
        assert asyncio.run(AsyncClient(url).push({"class": "R", "args": []}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://hush@host/0", "redis://:***@host/0"),
        ("redis+sentinel://hush@a:1,b:2/main", "redis+sentinel://:***@a:1,b:2/main"),
        ("redis://user:@host/0", "redis://user:***@host/0"),
        ("unix:///run/redis.sock?password=hush", "unix:///run/redis.sock?password=***"),
        ("redis://host/0?password=hu@sh&db=1", "redis://host/0?password=***&db=1"),
        ("redis+sentinel://a:1/main?sentinel_password=hush", "redis+sentinel://a:1/main?sentinel_password=***"),
        ("rediss://h/0?ssl_keyfile=k&ssl_password=hush", "rediss://h/0?ssl_keyfile=k&ssl_password=***"),
    ],
)
def test_a_password_without_a_user_is_not_shown(url, shown):
    """A user without a password has a colon behind it."""
    assert place(RedisSettings(url)) == shown


def test_what_settings_print_has_no_password():
    """Sentry, for one, sends the local variables of each frame of an error, in the text that `repr` makes of them."""
    settings = RedisSettings("redis://me:hush@host/0", namespace="shop")

    assert repr(Config(redis=settings)).startswith("Config(redis=<RedisSettings redis://me:***@host/0#shop>, ")
    assert "hush" not in repr(Config(redis=settings))


@pytest.mark.parametrize("url", ["user:hush@h:6379/0", ":hush@h", "hush@h", "redis:/:hush@h", "redis//user:hush@h"])
def test_the_error_for_a_misspelled_url_does_not_show_its_password(url):
    """The scheme is missing or damaged, so what stands before the first slashes is not just a scheme."""
    with pytest.raises(ConfigError) as caught:
        RedisSettings(url)

    assert "hush" not in str(caught.value)
    assert "@h" in str(caught.value)


def test_an_at_sign_in_a_path_is_no_password():
    """It may be in the name of a socket."""
    assert RedisSettings("unix:///run/a@b.sock").url == "unix:///run/a@b.sock"


@pytest.mark.parametrize(
    "url",
    [
        "redis://me@company:hush@host/0",
        "rediss://me@company:hush@[::1]:6379/0",
        "redis://me@host/0?password=hush",
        "unix://me@/run/redis.sock?db=1&password=hush",
    ],
)
def test_a_word_is_a_user_if_the_password_is_elsewhere(url):
    """redis-py documents such URLs of sockets."""
    assert RedisSettings(url).url == url


def by_url(server: RedisServer) -> Pool:
    """The pool that a program gets for a URL."""
    return Pool(RedisSettings(server.url))


def adopted(server: RedisServer) -> Pool:
    """The pool that a program gets for one of redis-py's."""
    return AdoptedPool(redis.ConnectionPool.from_url(server.url))


@pytest.mark.parametrize("pool_for", [by_url, adopted])
def test_idle_connections_send_probes(redis_server: RedisServer, pool_for: Callable[[RedisServer], Pool]) -> None:
    """A firewall that hears nothing for minutes forgets a connection, and whoever uses it next gets no reply."""
    pool = pool_for(redis_server)
    with pool.link() as link:
        link.connect()
        of_link = probes_of(link._connection._sock)
    pool.close()

    async def of_awaited() -> tuple[int, int]:
        async with AsyncClient(redis_server.url, sidekiq_version="7") as client:
            await client.push({"class": "A", "args": []})
            [links] = client._pool._loops.values()
            return probes_of(links.free[0]._connection._writer.get_extra_info("socket"))

    assert of_link == asyncio.run(of_awaited()) == (1, 30)


def test_idle_connections_to_sentinels_send_probes() -> None:
    """They are used again at the next failover, and a push then waits for each sentinel that gives no reply."""
    settings = RedisSettings("redis+sentinel://one,two/mymaster/0")

    for sentinel in sentinels_of(settings).asked.sentinels:
        connection = sentinel.connection_pool.make_connection()
        assert (connection.socket_keepalive, connection.socket_keepalive_options[socket.TCP_KEEPIDLE]) == (True, 30)


def probes_of(connection: Any) -> tuple[int, int]:
    """Whether a socket is kept alive, and after how many seconds."""
    is_kept_alive = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return is_kept_alive, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("redis://", "redis://127.0.0.1:6379/0", True),
        ("redis://user:secret@host", "rediss://HOST:6379?db=0", True),
        ("redis://host/1", "redis://host", False),
        ("redis://host?port=6380", "redis://host", False),
        ("redis://?host=one", "redis://?host=two", False),
        ("unix:///tmp/redis%20one", "unix:///tmp/redis one?db=0", True),
        ("unix:///tmp/redis?db=1", "unix:///tmp/redis", False),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://b:2,a:1/main/0", True),
        ("redis+sentinel://a:1/main?db=1", "redis+sentinel://a:1/main/1", True),
        ("redis+sentinel://a:1/main?db=1", "redis+sentinel://a:1/main", False),
        ("redis+sentinel://a:1/main", "redis+sentinel://a:1/other", False),
    ],
)
def test_urls_are_compared_by_the_database_that_they_lead_to(one: str, other: str, is_same: bool) -> None:
    """A connection takes host, port and database from the query, too. Whoever logs in does not matter."""
    assert is_same_database(RedisSettings(one), RedisSettings(other)) is is_same


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis.example.com", "redis.example.com:6379/0"),
        ("rediss://ada:geheim@redis.example.com:6380/2", "redis.example.com:6380/2"),
        ("redis://geheim@[::2]:6380?db=3&password=geheim", "[::2]:6380/3"),
        ("unix://ada:geheim@/run/redis.sock?db=1", "/run/redis.sock, database 1"),
        (
            "redis+sentinel://:geheim@b:26379,a:26379/jobs/4?sentinel_password=geheim",
            "jobs/4 by the sentinels a:26379, b:26379",
        ),
    ],
)
def test_the_address_of_a_pool_names_no_user_and_no_password(url: str, shown: str) -> None:
    """Every page of the dashboard shows it, to viewers as well."""
    assert Pool(RedisSettings(url)).address == shown


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        (redis.ConnectionPool(), "localhost:6379/0"),
        (redis.ConnectionPool.from_url("rediss://ada:geheim@redis.example.com:6380/2"), "redis.example.com:6380/2"),
        (redis.asyncio.ConnectionPool.from_url("redis://:geheim@[::2]:6380/3"), "[::2]:6380/3"),
        (redis.ConnectionPool.from_url("unix://ada:geheim@/run/redis.sock?db=1"), "/run/redis.sock, database 1"),
        (Sentinel([("a", 26379)]).master_for("jobs", password="geheim", db=4).connection_pool, "jobs/4 by sentinels"),
    ],
)
def test_the_address_of_an_adopted_pool_names_no_user_and_no_password(foreign: Any, shown: str) -> None:
    """Whatever the program has made it with."""
    assert AdoptedPool(foreign).address == shown
