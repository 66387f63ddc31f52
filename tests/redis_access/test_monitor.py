"""What MONITOR shows is read back to the very bytes that were sent."""

import threading
from collections.abc import Iterator

import pytest
import redis

from sidekiq_py.redis_access.connection.monitor import SeenCommand, parse, watch
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

EVERY_BYTE = bytes(range(256))
PAYLOAD = '{"class":"A","args":["\\"é\\n",1]}'.encode()


@pytest.fixture
def seen(redis_url: str, redis_client: redis.Redis) -> Iterator[list[SeenCommand]]:
    """Fills while the test runs."""
    commands: list[SeenCommand] = []
    seen_commands = watch(Pool(RedisSettings(redis_url)).new_link(timeout_seconds=60))

    def look_on() -> None:
        for command in seen_commands:
            commands.append(command)

    thread = threading.Thread(target=look_on)
    thread.start()
    yield commands
    redis_client.client_kill_filter(_type="normal", skipme=True)
    thread.join()


def words_of(commands: list[SeenCommand], name: bytes) -> tuple[bytes, ...]:
    """The words of the first command called *name*."""
    return next((command.words for command in commands if command.words[0] == name), ())


def test_a_command_has_its_time_and_its_words(seen: list[SeenCommand], redis_client: redis.Redis) -> None:
    """As the server took it."""
    [now, _] = redis_client.time()

    redis_client.lpush("queue:default", "{}")

    command = eventually(lambda: [command for command in seen if command.words[0] == b"LPUSH"])[0]
    assert command.words == (b"LPUSH", b"queue:default", b"{}")
    assert abs(command.at_seconds - now) < 5


def test_every_byte_survives(seen: list[SeenCommand], redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """Redis escapes quotes, backslashes and whatever cannot be printed; Valkey 8.1 forgets the first two."""
    is_forgetful = redis_server.program.product == "Valkey" and redis_server.program.numbers < (9,)
    value = EVERY_BYTE if not is_forgetful else EVERY_BYTE.translate(None, b'"\\\a\b\t\n\r')

    redis_client.set("key", value)

    assert eventually(lambda: words_of(seen, b"SET")) == (b"SET", b"key", value)


def test_a_payload_survives(seen: list[SeenCommand], redis_client: redis.Redis) -> None:
    """On every server."""
    redis_client.lpush("queue:default", PAYLOAD)

    assert eventually(lambda: words_of(seen, b"LPUSH")) == (b"LPUSH", b"queue:default", PAYLOAD)


def test_a_line_without_escaped_quotes_is_read() -> None:
    """As Valkey 8.1 writes it."""
    line = (
        rb'''1795173631.641310 [0 127.0.0.1:32792] "LPUSH" "queue:default" "{"class":"A","args":["\"\xc3\xa9\n",1]}"'''
    )

    parsed = parse(line)

    assert parsed is not None
    assert parsed.words == (b"LPUSH", b"queue:default", PAYLOAD)


def test_commands_from_within_a_script_are_seen(seen: list[SeenCommand], redis_client: redis.Redis) -> None:
    """The server names `lua` in place of a client's address."""
    redis_client.eval("redis.call('ZADD', KEYS[1], '1', 'member')", 1, "retry")

    assert eventually(lambda: words_of(seen, b"ZADD")) == (b"ZADD", b"retry", b"1", b"member")


def test_a_line_that_is_no_command_is_none() -> None:
    """A server that shows something else is not misread."""
    assert parse(b"OK") is None
