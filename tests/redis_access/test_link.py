"""One connection: what it says about a command that may or may not have been executed, and where it goes next."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import redis

from sidekiq_py.errors import (
    ConfigError,
    RedisConnectionError,
    RedisReplyError,
    ReplyLostError,
    SoftTimeLimitError,
)
from sidekiq_py.redis_access.connection.connections import PrimaryFinder
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.strikes import strike_everywhere
from tests.support.waiting import eventually


@pytest.fixture
def two_servers(new_redis_server: Callable[..., RedisServer]) -> tuple[RedisServer, RedisServer]:
    """A primary, and what will be the primary after a failover."""
    first, second = (new_redis_server() for _ in range(2))
    return first, second


def demote(server: RedisServer, primary: RedisServer) -> None:
    """Make a replica of a server."""
    client = server.client()
    client.replicaof("127.0.0.1", primary.port)
    client.close()


def text_at(server: RedisServer, key: str) -> bytes | None:
    """What a server itself holds."""
    with closing(server.client()) as client:
        text: bytes | None = client.get(key)
        return text


def make(server: RedisServer) -> redis.Connection:
    """A connection that is not connected yet."""
    return redis.Connection(host="127.0.0.1", port=server.port, protocol=2)


class Finder(PrimaryFinder):
    """Finds the primary without sentinels."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._service = ("", str(server.port))

    def __call__(self, timeout_seconds: float) -> redis.Connection:
        return make(self._server)

    def has_moved(self, connection: Any) -> bool:
        return False


@pytest.fixture
def link(two_servers: tuple[RedisServer, RedisServer]) -> Iterator[Link]:
    """To the first of them; it finds the second when it looks again."""
    first, second = two_servers
    one = Link(make(first), 5, Finder(second))
    yield one
    one.close()


def test_a_link_whose_first_try_was_in_vain_asks_where_the_primary_is(
    two_servers: tuple[RedisServer, RedisServer],
    link: Link,
) -> None:
    """It was made before a failover, and not needed until after it."""
    first, second = two_servers
    first.stop()

    with pytest.raises(RedisConnectionError):
        link.command("SET", "a", "1")
    link.command("SET", "a", "2")

    assert text_at(second, "a") == b"2"


def test_a_link_leaves_a_server_that_is_no_longer_the_primary(
    two_servers: tuple[RedisServer, RedisServer], link: Link
) -> None:
    """Nothing else would make it: such a server answers reads, and closes no connection."""
    first, second = two_servers
    link.command("SET", "a", "1")
    demote(first, second)

    with pytest.raises(RedisReplyError, match="READONLY"):
        link.command("SET", "a", "2")
    link.command("SET", "a", "3")

    assert text_at(second, "a") == b"3"


def test_the_replies_behind_a_refusal_are_still_read(two_servers: tuple[RedisServer, RedisServer], link: Link) -> None:
    """The connection is left with the next command, not between two replies."""
    first, second = two_servers
    link.connect()
    demote(first, second)

    refused, answered = link.batch([("SET", "a", "1"), ("ECHO", "here")])

    assert (getattr(refused, "code", None), answered) == ("READONLY", b"here")


def test_a_link_leaves_whatever_comes_behind_the_refusal(
    two_servers: tuple[RedisServer, RedisServer], link: Link
) -> None:
    """Another error in the same batch is no word of a primary."""
    first, second = two_servers
    link.command("SET", "a", "1")
    demote(first, second)

    refusals = link.batch([("SET", "a", "1"), ("NONSENSE",)])
    link.command("SET", "a", "2")

    assert [refusal.code for refusal in refusals] == ["READONLY", "ERR"]
    assert text_at(second, "a") == b"2"


def test_a_batch_of_nothing_asks_nothing(redis_url: str) -> None:
    """Nor does it wait for a reply."""
    link = Pool(RedisSettings(redis_url)).new_link()

    assert link.batch([]) == []
    assert not link.is_open


def test_replies_that_come_in_pieces_are_those_of_their_commands(redis_url: str) -> None:
    """More than the parser reads at a time, with errors in between."""
    link = Pool(RedisSettings(redis_url)).new_link()
    texts = [str(number) * (number * 37 % 5000) for number in range(500)]
    commands: list[tuple[str, ...]] = []
    for text in texts:
        commands += [("ECHO", text), ("NONSENSE", text[:9])]

    for replies in (link.batch(commands), link.transaction([("ECHO", text) for text in texts])):
        echoes = replies[::2] if len(replies) == len(commands) else replies
        assert echoes == [text.encode() for text in texts]
    assert link.command("PING") == b"PONG"
    link.close()


@pytest.mark.filterwarnings("ignore:Call to '__init__':DeprecationWarning")
@pytest.mark.parametrize(("query", "named"), [("", "redis-py"), ("?lib_name=shop&lib_version=9", "shop")])
def test_a_program_may_name_itself_to_the_server(redis_url: str, query: str, named: str) -> None:
    """As redis-py lets it; else it is redis-py that is named."""
    link = Pool(RedisSettings(redis_url + query)).new_link()

    connection: Any = link._connection
    # redis-py 5 has a field for it.
    driver = getattr(connection, "driver_info", None)
    assert (driver.formatted_name if driver else connection.lib_name) == named


@pytest.mark.filterwarnings("ignore:Call to '__init__':DeprecationWarning")
def test_the_server_is_told_the_release_of_redis_py(redis_url: str) -> None:
    """As redis-py would, which reads files for it."""
    connection: Any = Pool(RedisSettings(redis_url)).new_link()._connection

    driver = getattr(connection, "driver_info", None)
    assert (driver or connection).lib_version == redis.__version__


@pytest.mark.filterwarnings("ignore:Call to '__init__':DeprecationWarning")
def test_a_connection_has_a_small_buffer(redis_url: str) -> None:
    """A worker has a dozen of them; replies of any size still arrive whole."""
    link = Pool(RedisSettings(redis_url)).new_link()

    assert link._connection._socket_read_size == 16_384
    assert link.command("ECHO", b"x" * 100_000) == b"x" * 100_000
    link.close()


class BreaksWhileSending(redis.Connection):
    """Its socket takes the first bytes and then no more."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send pushes only in part."""
        packed = b"".join([command] if isinstance(command, bytes) else command)
        if b"LPUSH" not in packed:
            super().send_packed_command(command, check_health)
            return
        assert isinstance(self._sock, socket.socket)
        self._sock.sendall(packed[:40])
        raise redis.ConnectionError("broken pipe")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_connection_loads_no_tables_for_internationalized_names(redis_url: str, host: str) -> None:
    """They take 0.4 MB in each process."""
    program = (
        "import sys\n"
        "from sidekiq_py.redis_access.connection.pool import Pool\n"
        "from sidekiq_py.redis_access.connection.settings import RedisSettings\n"
        "with Pool(RedisSettings(sys.argv[1])).link() as link:\n"
        "    print(link.command('PING'), 'stringprep' in sys.modules)\n"
    )

    told = subprocess.run(
        [sys.executable, "-c", program, redis_url.replace("127.0.0.1", host)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout == "b'PONG' False\n"


# A socket that nobody holds yet is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_exception_while_a_connection_is_made_leaves_it_usable(redis_url: str) -> None:
    """
    Of a time limit or a signal handler, anywhere in it. Otherwise each further push of that thread might raise
    `AttributeError: 'bytes' object has no attribute 'encode'`.
    """
    pool = Pool(RedisSettings(redis_url))
    link = pool.new_link()

    def connect() -> None:
        link.close()
        link.connect()

    def is_usable() -> None:
        link.close()
        assert link.command("PING") == b"PONG"

    strike_everywhere(connect, is_usable)
    link.close()


def test_a_host_that_does_not_resolve_is_named_as_it_was_given() -> None:
    """Also one with other letters than ASCII's, which Python has to encode."""
    for host in ("nowhere.invalid", "nirgendwö.invalid"):
        pool = Pool(RedisSettings(f"redis://{host}:1/0"))
        with pytest.raises(RedisConnectionError, match=f"{host}:1"), pool.link() as link:
            link.command("PING")


def test_nobody_is_served_between_the_commands_of_a_transaction(redis_url: str, redis_client: redis.Redis) -> None:
    """Who waits for what the first one pushes waits on, and the second one takes it; an error is a reply as any."""
    pool = Pool(RedisSettings(redis_url))
    other, link = pool.new_link(), pool.new_link()
    other.send(other.pack([("BLMOVE", "jobs", "theirs", "RIGHT", "LEFT", 0)]))
    eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)

    replies = link.transaction([("LPUSH", "jobs", "1"), ("INCR", "jobs"), ("RPOP", "jobs")])

    assert [replies[0], replies[2]] == [1, b"1"]
    assert isinstance(replies[1], RedisReplyError)
    assert replies[1].code == "WRONGTYPE"
    assert redis_client.exists("theirs") == 0
    other.close()
    link.close()


@pytest.mark.parametrize("refused", ["multi", "exec", "incr"])
def test_where_a_transaction_is_refused_each_command_is_sent_for_itself(
    redis_url: str, redis_client: redis.Redis, refused: str
) -> None:
    """The one that is at fault says so, the others are executed, and each once."""
    redis_client.execute_command("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "+@all", f"-{refused}")
    pool = Pool(RedisSettings(redis_url.replace("redis://", "redis://clerk:x@")))
    link = pool.new_link()

    try:
        pushed, counted = link.transaction([("LPUSH", "jobs", "1"), ("INCR", "count")])
    finally:
        link.close()
        redis_client.execute_command("ACL", "DELUSER", "clerk")

    assert pushed == 1
    assert counted.code == "NOPERM" if refused == "incr" else counted == 1
    assert redis_client.llen("jobs") == 1


def test_a_link_leaves_a_server_that_refuses_within_a_transaction(
    two_servers: tuple[RedisServer, RedisServer],
    link: Link,
) -> None:
    """As where it refuses a single command: the next one goes to the primary."""
    first, second = two_servers
    link.connect()
    demote(first, second)

    [refusal] = link.transaction([("EVAL", "return redis.call('SET', KEYS[1], '1')", 1, "a")])
    link.command("SET", "a", "2")

    assert refusal.code == "READONLY"
    assert text_at(second, "a") == b"2"


def test_the_first_of_many_commands_may_have_been_executed_when_sending_breaks(redis_server: RedisServer) -> None:
    """Nobody may send all of them again; a single command was not executed."""
    link = Link(BreaksWhileSending(host="127.0.0.1", port=redis_server.port, protocol=2), 5)

    with pytest.raises(ReplyLostError, match="the first of 2 commands"):
        link.batch([("LPUSH", "queue:a", "1"), ("LPUSH", "queue:b", "1")])
    with pytest.raises(RedisConnectionError):
        link.batch([("LPUSH", "queue:a", "1")])
    link.close()


def test_where_nobody_listens_nothing_was_executed() -> None:
    """Also of many commands."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    link = Pool(RedisSettings(f"redis://127.0.0.1:{port}/0")).new_link()

    with pytest.raises(RedisConnectionError):
        link.batch([("PING",), ("PING",)])


def answer_as_a_web_server(listener: socket.socket) -> None:
    """To whatever is asked after the greeting."""
    other, _ = listener.accept()
    with other:
        while request := other.recv(65536):
            other.sendall(b"+OK\r\n" * request.count(b"SETINFO") or b"HTTP/1.1 400 Bad Request\r\n")


def test_a_reply_that_is_no_reply_counts_as_lost() -> None:
    """Whoever answers there, the command may have been executed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Pool(RedisSettings(f"redis://127.0.0.1:{listener.getsockname()[1]}/0")).new_link()
        threading.Thread(target=answer_as_a_web_server, args=(listener,)).start()

        with pytest.raises(ReplyLostError):
            link.command("PING")
    assert not link.is_open


def test_an_abandoned_pool_keeps_nobody_waiting(redis_url: str) -> None:
    """A process that leaves without a Redis that hangs ends all its calls at once, wherever they stand."""
    pool = Pool(RedisSettings(redis_url))
    link = pool.new_link()
    link.connect()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            link.command("BLPOP", "never", 0)
        except ReplyLostError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    client = redis.Redis.from_url(redis_url)
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    client.close()

    pool.abandon()

    waiting.join(2)
    assert len(ended) == 1
    for later in (link, pool.new_link()):
        with pytest.raises(RedisConnectionError, match="no more commands are sent"):
            later.command("PING")


def test_a_connection_that_was_abandoned_as_it_opened_gives_no_advice_about_the_server() -> None:
    """The server has not hung up, so neither its TLS nor its `maxclients` is the cause."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        pool = Pool(RedisSettings(f"redis://127.0.0.1:{listener.getsockname()[1]}/0"))
        opening = threads.submit(pool.new_link().connect)
        server, _ = listener.accept()
        server.recv(1)

        pool.abandon()

        with server, pytest.raises(RedisConnectionError, match="no more commands are sent"):
            opening.result(2)


@pytest.mark.parametrize(
    "option",
    [
        "protocol=3",
        "decode_responses=true",
        "encoding=latin-1",
        "retry_on_timeout=true",
        "health_check_interval=5",
        "client_name=me",
        "max_connections=3",
    ],
)
def test_options_of_a_url_do_not_change_what_replies_look_like(redis_url: str, option: str) -> None:
    """All that reads them rests on bytes and flat lists."""
    pool = Pool(RedisSettings(f"{redis_url}?{option}"))
    pool.command("HSET", "h", "name", "é")

    assert pool.command("HGETALL", "h") == [b"name", "é".encode()]
    pool.close()


@pytest.mark.parametrize(("option", "name"), [("nope=1", "nope"), ("ssl_cert_reqs=none", "ssl_cert_reqs")])
def test_an_option_that_a_url_cannot_have_is_named(redis_url: str, option: str, name: str) -> None:
    """Without the password."""
    pool = Pool(RedisSettings(f"{redis_url.replace('//', '//:secret@')}?{option}"))

    with pytest.raises(ConfigError, match=f"redis:// has no option {name}") as refused:
        pool.new_link()

    assert "secret" not in str(refused.value)


_LEAVING = """
import os, sys, time
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

link, other = (Pool(RedisSettings(sys.argv[1])).new_link() for _ in range(2))
link.connect()
text = "x" * int(sys.argv[2])
began = time.monotonic()
link.send_as_process_ends(link.pack([("SET", "left", text)])[0])
for _ in range(5):
    seen = other.command("EXISTS", "left")
# The kernel keeps it for 200 ms, so what was seen later on a slow machine says nothing.
print(seen if time.monotonic() - began < 0.15 else "late", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_is_sent_as_a_process_ends_arrives_when_it_has_ended(
    redis_url: str, redis_client: redis.Redis, size: int
) -> None:
    """Its threads could go on between the two, and run a job that somebody else has begun."""

    def leave() -> str:
        redis_client.delete("left")
        command = [sys.executable, "-c", _LEAVING, redis_url, str(size)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        eventually(lambda: redis_client.strlen("left") == size)
        return said

    said = "late"
    while said == "late":
        said = leave()

    assert said == "0"


@pytest.mark.parametrize("namespace", ["", "ns"])
def test_a_name_that_is_not_utf_8_goes_back_as_the_bytes_that_came(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    """Other programs choose names, and a command that names one must not fail with all that are sent beside it."""
    raw = (b"ns:" if namespace else b"") + b"caf\xe9"
    redis_client.set(raw, "text")
    name = b"caf\xe9".decode(errors="surrogateescape")

    with closing(Pool(RedisSettings(redis_url, namespace=namespace))) as pool:
        assert pool.command("GET", name) == b"text"
        assert pool.batch([("GET", "other"), ("GET", name), ("SET", "value", name)]) == [None, b"text", b"OK"]
        assert pool.run(lambda link: link.transaction([("STRLEN", name), ("GET", name)])) == [4, b"text"]
        assert pool.command("GET", "value") == b"caf\xe9"
        assert pool.command("SCAN", 0, "MATCH", b"caf\xe9", "COUNT", 1000)[1] == [b"caf\xe9"]


def test_a_surrogate_that_stands_for_no_byte_is_refused(redis_url: str, redis_client: redis.Redis) -> None:
    """No bytes are meant by it, so nothing of the batch is sent."""
    with closing(Pool(RedisSettings(redis_url))) as pool:
        with pytest.raises(UnicodeEncodeError):
            pool.batch([("SET", "one", "text"), ("SET", "two", "\ud800")])
        assert pool.command("PING") == b"PONG"

    assert redis_client.keys() == []


@pytest.mark.parametrize("method", ["receive", "receive_all"])
def test_a_time_limit_between_a_command_and_its_reply_leaves_no_reply_behind(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It closes the connection of the job that it strikes: the next user of the pool reads its own replies."""
    pool = Pool(RedisSettings(redis_url))
    pool.command("PING")

    def strike(link: Link, *args: object) -> object:
        raise SoftTimeLimitError("the job's time is up")

    with monkeypatch.context() as patch:
        patch.setattr(Link, method, strike)
        with pytest.raises(SoftTimeLimitError):
            pool.command("ECHO", "lost") if method == "receive" else pool.batch([("ECHO", "lost")])

    assert pool.command("ECHO", "mine") == b"mine"
    pool.close()
