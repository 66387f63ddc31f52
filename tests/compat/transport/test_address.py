"""Where Redis is: URLs, TLS, sentinels, sockets and users."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kombu import Connection
from kombu.simple import SimpleQueue
from redis import Redis
from redis.sentinel import SentinelConnectionPool
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.transport import Transport
from sidekiq_celery.transport.address import redis_pool, settings_of

from sidekiq_py.extension import RedisSettings
from tests.support.certificates import make_certificates
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.sentinel import SERVICE, Sentinel

NAMED = "sidekiq_celery.transport:Transport"


def round_trip(connection: Connection) -> None:
    """A message goes there and back, also by a copy of the connection, as kombu's pools make them."""
    with connection, connection.clone() as copy:
        with SimpleQueue(copy, "somewhere") as queue:
            queue.put("hello")
        with SimpleQueue(connection, "somewhere") as queue:
            message = queue.get(timeout=60)
            message.ack()
    assert message.payload == "hello"


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("sidekiq://", {}, "redis://localhost"),
        ("sidekiq://u:p%40@h:1/2", {}, "redis://u:p%40@h:1/2"),
        ("sidekiqs://h:1/2?ssl_ca_certs=/ca.pem", {}, "rediss://h:1/2?ssl_ca_certs=%2Fca.pem"),
        ("sidekiq+socket:///tmp/r.sock?virtual_host=3", {}, "unix:///tmp/r.sock?db=3"),
        ("sidekiq+sentinel://a:1/2", {"master_name": "m"}, "redis+sentinel://a:1/m/2"),
        (
            "sidekiq+sentinel://:p@a:1;sidekiq+sentinel://b:2/3",
            {"master_name": "m", "sentinel_kwargs": {"password": "q"}},
            "redis+sentinel://:p@a:1,b:2/m/3?sentinel_password=q",
        ),
    ],
)
def test_a_url_leads_to_redis(url: str, options: dict[str, object], expected: str) -> None:
    """Also after kombu has copied the connection."""
    connection = Connection(url, transport_options=options)

    assert settings_of(connection).url == settings_of(connection.clone()).url == expected


def test_parts_of_a_connection_lead_to_redis() -> None:
    """As a program gives them that writes no URL."""
    connection = Connection("h", userid="u", password="p/", port=1, virtual_host="2", transport=NAMED)

    assert settings_of(connection).url == "redis://u:p%2F@h:1/2"


def test_the_next_server_is_tried_by_the_same_transport() -> None:
    """kombu's fail-over gives the parts of the next URL."""
    connection = Connection("sidekiqs://a:1/2;sidekiqs://b:1/2")

    connection.switch("sidekiqs://b:1/2")

    assert settings_of(connection).url == "rediss://b:1/2"


def test_what_is_no_redis_is_refused() -> None:
    """The message says what to write."""
    with pytest.raises(ImproperlyConfigured, match="sidekiq://localhost"):
        settings_of(Connection("amqp://localhost", transport=Transport))


def test_a_transport_can_be_named_beside_a_redis_url(redis_url: str) -> None:
    """As Celery's setting `broker_transport` does."""
    round_trip(Connection(redis_url, transport=NAMED))


def test_a_unix_socket(redis_server: RedisServer, redis_url: str) -> None:
    """kombu writes it with the path behind `socket`."""
    round_trip(Connection(f"sidekiq+socket://{redis_server.socket_path}"))


def test_tls(new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    """Without an authority the certificate is refused; nothing goes in the clear."""
    certificates = make_certificates(tmp_path)
    port = free_port()
    new_redis_server(config=certificates.server_settings(port))
    url = f"sidekiqs://localhost:{port}/0"

    round_trip(Connection(f"{url}?ssl_ca_certs={certificates.authority}"))
    with pytest.raises(Connection(url).connection_errors, match="certificate"), Connection(url) as refused:
        refused.connect()


def test_a_sentinel_names_the_primary(new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    """By its name among the options, as in kombu's own transport."""
    server = new_redis_server()
    with Sentinel(server, tmp_path) as sentinel:
        url = f"sidekiq+sentinel://127.0.0.1:{sentinel.port}/0?client_name=shop"
        round_trip(Connection(url, transport_options={"master_name": SERVICE}))
    with server.client() as client:
        assert client.sismember("queues", "somewhere")


@pytest.mark.parametrize("is_secure", ["", "false", "0"])
def test_sentinels_are_asked_in_the_clear_unless_told_otherwise(
    is_secure: str, new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """As the engine reads the same URL."""
    with Sentinel(new_redis_server(), tmp_path) as sentinel:
        settings = RedisSettings(f"{sentinel.url}?sentinel_ssl={is_secure}")
        with Redis(connection_pool=redis_pool(settings)) as client:
            assert client.ping()


def test_sentinels_have_a_port_of_their_own_by_default() -> None:
    """26379, as the engine has it; users, passwords and TLS go where they belong."""
    url = (
        "rediss+sentinel://u:p%40@a,b:1/m/3?sentinel_username=s&sentinel_password=q&sentinel_ssl=true&ssl_ca_certs=/ca"
    )

    pool = redis_pool(RedisSettings(url))

    assert isinstance(pool, SentinelConnectionPool)
    own = pool.connection_kwargs
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in asked] == [("a", 26379), ("b", 1)]
    assert {name: own[name] for name in ("username", "password", "db", "ssl_ca_certs")} == {
        "username": "u",
        "password": "p@",
        "db": 3,
        "ssl_ca_certs": "/ca",
    }
    assert (asked[0]["username"], asked[0]["password"], asked[0]["ssl_ca_certs"]) == ("s", "q", "/ca")


def test_a_reply_to_kombu_s_own_commands_is_awaited_for_five_seconds(connection: Connection) -> None:
    """As for those of jobs: remote control must not stand still on a connection that a firewall has forgotten."""
    made = connection.default_channel.client.connection_pool.make_connection()
    made.connect()
    seconds = made._sock.gettimeout()
    made.disconnect()

    assert seconds == 5
