"""An error reply is known by its code, also where a script met it, in the words of every server."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseRequestHandler, TCPServer

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import RedisConnectionError, RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import not_connected
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.connection.transaction import transact
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

PUSH = "return redis.call('LPUSH', KEYS[1], 'a')"


@pytest.fixture
def server(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """One that may be spoilt."""
    return new_redis_server()


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """To spoil it."""
    one = server.client()
    yield one
    one.close()


def code_of_a_push_within_a_script(url: str) -> str:
    """What is known of the error."""
    pool = Pool(RedisSettings(url))
    with pytest.raises(RedisReplyError) as refused:
        pool.command("EVAL", PUSH, 1, "queue:a")
    pool.close()
    return refused.value.code


@pytest.mark.parametrize(("setting", "code"), [("maxmemory", "OOM"), ("min-replicas-to-write", "NOREPLICAS")])
def test_what_the_server_cannot_do_now(setting: str, code: str, server: RedisServer, client: redis.Redis) -> None:
    """Memory is full, or too few replicas are there."""
    client.config_set(setting, 1)

    assert code_of_a_push_within_a_script(server.url) == code


def test_a_server_without_a_free_connection_is_named_in_async_code_too(
    server: RedisServer, client: redis.Redis
) -> None:
    """Its refusal is mostly lost there, so what is left of the error names the likely cause."""
    client.config_set("maxclients", 1)
    push = sidekiq.AsyncClient(server.url).push({"class": "A", "args": []})

    with pytest.raises(RedisConnectionError, match="`maxclients` allows are in use") as raised:
        asyncio.run(push)
    assert raised.value.may_pass_at_start


def test_a_key_of_another_type(server: RedisServer, client: redis.Redis) -> None:
    """Somebody else wrote it."""
    client.set("queue:a", "foreign")

    assert code_of_a_push_within_a_script(server.url) == "WRONGTYPE"


def test_an_error_reads_as_if_no_script_had_met_it(server: RedisServer) -> None:
    """The digest and the line of a script of ours tell its users nothing."""
    pool = Pool(RedisSettings(server.url))
    pool.command("SET", "queue:a", "foreign")
    with pytest.raises(RedisReplyError) as plain:
        pool.command("LPUSH", "queue:a", "a")

    with pytest.raises(RedisReplyError) as within:
        pool.command("EVAL", PUSH, 1, "queue:a")

    assert str(within.value) == str(plain.value)
    pool.close()


@pytest.mark.parametrize("rule", ["-lpush", "resetkeys ~other"])
def test_what_an_acl_forbids(rule: str, server: RedisServer, client: redis.Redis) -> None:
    """A command or a key."""
    client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", *rule.split())

    assert code_of_a_push_within_a_script(server.url.replace("redis://", "redis://worker:secret@")) == "NOPERM"


def test_a_refused_exec_has_the_reason_for_its_code(server: RedisServer, client: redis.Redis) -> None:
    """The code of a missing right is one, so whoever sees it is told where the rights are listed."""
    client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-exec")
    pool = Pool(RedisSettings(server.url.replace("redis://", "redis://worker:secret@")))

    with pytest.raises(RedisReplyError, match=r"^NOPERM .*'exec'") as refused:
        transact(pool, [("GET", "a"), ("GET", "b")])

    pool.close()
    assert refused.value.code == "NOPERM"


def test_a_replica(server: RedisServer, client: redis.Redis, new_redis_server: Callable[..., RedisServer]) -> None:
    """A worker that reads this goes to the primary. One that has lost its primary may not even be read."""
    replica = new_redis_server(config={"replicaof": f"127.0.0.1 {server.port}"})
    replica_client = replica.client()
    eventually(lambda: replica_client.info("replication")["master_link_status"] == "up")

    assert code_of_a_push_within_a_script(replica.url) == "READONLY"

    replica_client.config_set("replica-serve-stale-data", "no")
    server.stop()
    eventually(lambda: replica_client.info("replication")["master_link_status"] == "down")
    replica_client.close()
    assert code_of_a_push_within_a_script(replica.url) == "MASTERDOWN"


def test_a_refused_certificate_is_told_where_redis_py_keeps_it_to_itself() -> None:
    """redis-py 5.0 says to `async` code only that connecting failed."""
    refused = redis.ConnectionError("Error 1 connecting to localhost:6379. 1.")
    refused.__context__ = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")

    error = not_connected(refused)

    assert error.is_advised
    assert str(error) == (
        "Redis is out of reach: Error 1 connecting to localhost:6379. 1: certificate verify failed: self-signed "
        "certificate. Name the authority that signed it in the URL (rediss://…?ssl_ca_certs=/path/ca.pem) or in "
        "SSL_CERT_FILE"
    )


def test_tls_with_a_server_that_does_not_use_it(server: RedisServer) -> None:
    """The server waits for the end of what it takes for a command, so all that shows is a timeout."""
    pool = Pool(RedisSettings(server.url.replace("redis://", "rediss://"), socket_timeout_seconds=0.1))
    with pytest.raises(RedisConnectionError, match="write redis:// in the URL, not rediss://") as raised:
        pool.command("PING")
    assert raised.value.is_advised
    assert not raised.value.may_pass_at_start
    pool.close()


def test_a_database_that_the_server_does_not_have(server: RedisServer) -> None:
    pool = Pool(RedisSettings(f"redis://127.0.0.1:{server.port}/99"))
    with pytest.raises(
        RedisReplyError, match="the URL ends with the number of a database that this server lacks"
    ) as raised:
        pool.command("PING")
    assert not raised.value.may_pass_at_start
    pool.close()


@contextmanager
def serving(server: TCPServer) -> Iterator[str]:
    """The URL of *server*, which serves on a thread until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            thread.join()


def test_an_http_server_is_told_from_a_redis_that_is_down() -> None:
    """A wrong port is a common slip, and "out of reach" alone sends people to a firewall."""
    with serving(HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)) as url:
        pool = Pool(RedisSettings(url))
        with pytest.raises(RedisConnectionError, match="what answers there is not Redis") as raised:
            pool.command("PING")
        assert not raised.value.is_advised
        pool.close()


def reset(connection: socket.socket) -> None:
    """What was sent is thrown away, and the peer learns it by a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def read_all(connection: socket.socket) -> None:
    """What was sent is read, so that the connection ends in an orderly way."""
    connection.recv(65_536)


def send_alert(connection: socket.socket) -> None:
    """As a TLS server does that was spoken to in plain text: "protocol version"."""
    connection.recv(65_536)
    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")


def push(url: str) -> None:
    """By the client that blocks."""
    sidekiq.Client(url).push({"class": "A", "args": []})


def push_async(url: str) -> None:
    """By the client that is awaited."""
    asyncio.run(sidekiq.AsyncClient(url).push({"class": "A", "args": []}))


@pytest.mark.parametrize("push", [push, push_async])
@pytest.mark.parametrize("hang_up", [reset, read_all, send_alert])
def test_a_server_that_hangs_up_at_once_may_want_tls(
    hang_up: Callable[[socket.socket], None], push: Callable[[str], None]
) -> None:
    """The advice is the same for each way to do so, and whatever the client did at that moment."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            hang_up(self.request)
            self.request.close()

    with serving(TCPServer(("127.0.0.1", 0), Handler)) as url:
        with pytest.raises(RedisConnectionError, match="write rediss:// in the URL") as raised:
            push(url)
        assert raised.value.is_advised
        # A proxy hangs up, too, whose Redis is not up yet; an alert shows that TLS is needed.
        assert raised.value.may_pass_at_start == (hang_up is not send_alert)
        assert "is not Redis" not in str(raised.value)
