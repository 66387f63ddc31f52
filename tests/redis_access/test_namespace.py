"""Which words of a command are keys, and what a reply says of them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.namespace import Namespace
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight, recover
from sidekiq_py.wire import keys
from tests.engine.fetch.in_flight_jobs import OWNER, fetch

MYAPP = Namespace("myapp")


@pytest.fixture(params=["myapp", "queue", "a:b", "sidekiq [1]*"])
def pool(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Links to the test's own server, under a namespace."""
    links = Pool(RedisSettings(redis_url, namespace=request.param))
    yield links
    links.close()


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        (("PING",), ["PING"]),
        (("CONFIG", "GET", "maxmemory-policy"), ["CONFIG", "GET", "maxmemory-policy"]),
        (("LPUSH", "queue:a", b"job"), ["LPUSH", "myapp:queue:a", b"job"]),
        (("HGET", b"host:1:2", "info"), ["HGET", b"myapp:host:1:2", "info"]),
        (("UNLINK", "a", b"b"), ["UNLINK", "myapp:a", b"myapp:b"]),
        (("BLMOVE", "a", "b", "RIGHT", "LEFT", 2), ["BLMOVE", "myapp:a", "myapp:b", "RIGHT", "LEFT", 2]),
        (("BRPOP", "a", "b", 2), ["BRPOP", "myapp:a", "myapp:b", 2]),
        (("MSET", "a", 1, "b", 2), ["MSET", "myapp:a", 1, "myapp:b", 2]),
        (("EVALSHA", b"digest", 2, "a", "b", "c"), ["EVALSHA", b"digest", 2, "myapp:a", "myapp:b", "c"]),
        (("EVAL", b"text", 0, "c"), ["EVAL", b"text", 0, "c"]),
        (("SCAN", "0", "COUNT", 9), ["SCAN", "0", "COUNT", 9, "MATCH", "myapp:*"]),
        (("SCAN", "0", "MATCH", b"it-*"), ["SCAN", "0", "MATCH", "myapp:it-*"]),
    ],
)
def test_a_namespace_stands_before_each_key_of_a_command(words: tuple[Any, ...], spelled: list[Any]) -> None:
    """And before nothing else."""
    assert list(MYAPP.command(words)) == spelled


def test_wildcards_in_a_namespace_are_none_in_a_pattern() -> None:
    """A scan sees this namespace's keys alone."""
    assert Namespace("a*b[c]?\\").command(("SCAN", "0"))[-1] == r"a\*b\[c\]\?\\:*"


@pytest.mark.parametrize("name", ["FLUSHDB", "SORT", "RENAME", "get", b"GET"])
def test_a_command_that_nobody_described_is_not_sent(name: str | bytes) -> None:
    """It would touch the keys of others."""
    with pytest.raises(NotImplementedError, match="add it to the table"):
        MYAPP.command((name, "a"))


def test_every_command_of_this_project_is_described(redis_client: redis.Redis) -> None:
    """In the code as it stands: it is written as a tuple, or as a call of `command`, that begins with its name."""
    known = {name.upper() for name in redis_client.command()}
    paths = sorted(Path(sidekiq_py.__path__[0]).rglob("*.py"))
    found = {word: path.name for path in paths for word in _first_words(path) if word in known}

    assert len(found) > 40
    assert {word: name for word, name in found.items() if not _is_described(word)} == {}


def test_replies_name_keys_without_the_namespace(pool: Pool, redis_client: redis.Redis) -> None:
    """The two that name any."""
    redis_client.set("elsewhere", "1")
    pool.command("RPUSH", "queue:default", "job")

    assert pool.command("SCAN", "0", "COUNT", 100)[1] == [b"queue:default"]
    [[_, found]] = pool.batch([("SCAN", "0", "MATCH", "queue:*", "COUNT", 100)])
    assert found == [b"queue:default"]
    assert pool.command("BRPOP", "queue:none", "queue:default", 1) == [b"queue:default", b"job"]
    assert pool.command("BRPOP", "queue:none", 0.01) is None


@pytest.mark.parametrize("queue", ["default", "queue:queues", "paused"])
def test_scripts_find_the_name_of_a_queue_behind_any_namespace(
    pool: Pool, redis_client: redis.Redis, queue: str
) -> None:
    """Fetched and given back, fetched and recovered, moved and put back."""
    raw = b'{"class":"Note","args":[],"jid":"a1"}'
    pool.command("LPUSH", keys.queue(queue), raw)
    with pool.link() as link:
        [(field, _)] = fetch(link, (queue, 0))
        in_flight.give_back(link, OWNER, [field])
        assert pool.command("SMEMBERS", keys.QUEUES) == [queue.encode()]
        pool.command("UNLINK", keys.QUEUES)

        [(field, _)] = fetch(link, (queue, 0), batch=2)
        in_flight.fence(link, OWNER, certain=True, now=1.0)
        recover.put_back(link, OWNER, [recover.Fate(recover.Entry(field, raw), 0, 1.0)])
        assert pool.command("SMEMBERS", keys.QUEUES) == [queue.encode()]
        pool.command("UNLINK", keys.QUEUES)

        pool.command("LMOVE", keys.queue(queue), keys.inbox(OWNER, queue), "RIGHT", "LEFT")
        [[entry]] = recover.entries(link, OWNER, [queue])
        recover.put_back(link, OWNER, [recover.Fate(entry, 0, 1.0)])
    assert pool.command("SMEMBERS", keys.QUEUES) == [queue.encode()]
    assert pool.command("LRANGE", keys.queue(queue), 0, -1) == [raw]
    assert [key for key in redis_client.keys("*") if not key.startswith(pool.key_prefix.encode())] == []


def test_a_paused_queue_is_known_behind_any_namespace(pool: Pool) -> None:
    """Names of queues are values: they bear no namespace."""
    pool.command("SADD", keys.PAUSED, "default")
    pool.command("LPUSH", keys.queue("default"), b"{}")

    with pool.link() as link:
        assert fetch(link) == []
        pool.command("SREM", keys.PAUSED, "default")
        assert len(fetch(link)) == 1


@pytest.mark.parametrize("name", [None, 5, b"myapp"])
def test_a_namespace_is_a_text(name: Any) -> None:
    """An empty one means none."""
    with pytest.raises(ConfigError, match="it must be a string"):
        RedisSettings(namespace=name)


def test_a_namespace_can_be_written_in_utf_8() -> None:
    """It is refused where it is set, and not with the first command."""
    with pytest.raises(ConfigError, match=r"namespace is '\\ud800', which has a character that UTF-8"):
        RedisSettings(namespace="\ud800")


def test_a_pool_shows_its_namespace(redis_url: str) -> None:
    """As Ruby's Web UI does."""
    assert repr(Pool(RedisSettings(redis_url, namespace="myapp"))).endswith("/0#myapp free=0>")


def _first_words(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        words: list[ast.expr] = []
        if isinstance(node, ast.Tuple):
            words = node.elts
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "command":
            words = node.args
        if words and isinstance(words[0], ast.Constant) and isinstance(words[0].value, str):
            yield words[0].value


def _is_described(name: str) -> bool:
    try:
        MYAPP.command((name, "1", "1", "1"))
    except NotImplementedError:
        return False
    return True
