"""The script that settles many successes at once: a verb counts them, and each job leaves where it stands."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import Tally
from sidekiq_py.redis_access.job_path.verbs import Verb, verbs
from tests.engine.fetch.in_flight_jobs import OWNER, fetch, held, push
from tests.support.redis_server import RedisServer

INBOX = f"sidekiq_py:inbox:{OWNER}:default"
# `look` takes words off its list, as that of a batch's step does; `run` writes those that it gets.
ADD = Verb(
    "MANY_ADD",
    """{
  look = function(key, words)
    table.remove(words)
    if redis.call('EXISTS', key .. ':closed') == 1 then return 'CLOSED it takes no more' end
  end,
  run = function(key, words)
    for _, word in ipairs(words) do redis.call('RPUSH', key, word) end
  end,
}""",
)
BROKEN = Verb("MANY_BROKEN", "{run = function(key, words) return words.none + 1 end}")
REFUSED = Verb("MANY_REFUSED", "{run = function(key, words) return {err = 'ODD it is refused'} end}")


@pytest.fixture(autouse=True)
def _with_verbs() -> None:
    verbs.add([ADD, BROKEN, REFUSED])


def settle(link: Link, *jobs: tuple[bytes, bytes | None, str], verb: Verb = ADD) -> Any:
    """Settle jobs, each with its field, its bytes if it is in an inbox, and its word."""
    ends: Sequence[Any] = [(field, raw, Tally(verb.name, "many", ("first",), (word,))) for field, raw, word in jobs]
    [reply] = link.batch([in_flight.settle_many_call(OWNER, ends, has_script=False)])
    if isinstance(reply, Exception):
        raise reply
    return reply


def test_those_that_are_still_in_flight_are_counted(link: Link, redis_client: redis.Redis) -> None:
    """Another process has recovered the others, and will count them."""
    push(redis_client, "a", "b", "c")
    [(a, _), (b, _), (c, _)] = fetch(link)
    redis_client.hdel(f"sidekiq_py:inflight:{OWNER}", b)
    redis_client.lpush(INBOX, "listed")

    reply = settle(
        link, (a, None, "a"), (b, None, "b"), (b"9.0@default", b"listed", "d"), (b"9.1@default", b"gone", "e")
    )

    assert reply == 2
    assert redis_client.lrange("many", 0, -1) == [b"first", b"a", b"d"]
    assert (held(redis_client), redis_client.exists(INBOX)) == ({c: b"c"}, 0)


def test_where_none_is_in_flight_nothing_is_written(link: Link, redis_client: redis.Redis) -> None:
    """As when it is sent again after a lost reply."""
    assert settle(link, (b"1.0:default", None, "a")) == 0

    assert redis_client.keys() == []


def test_of_two_equal_jobs_in_an_inbox_one_is_settled(link: Link, redis_client: redis.Redis) -> None:
    """The other one may still run."""
    redis_client.lpush(INBOX, "same", "same")

    assert settle(link, (b"9.0@default", b"same", "a")) == 1

    assert redis_client.lrange(INBOX, 0, -1) == [b"same"]


def test_more_than_a_thousand_leave_together(link: Link, redis_client: redis.Redis) -> None:
    """Lua hands some 8,000 values to a command, so they leave in parts."""
    push(redis_client, *map(str, range(2_500)))
    fields = [field for field, _ in fetch(link, max_jobs=2_500)]

    assert settle(link, *((field, None, "x") for field in fields)) == 2_500

    assert held(redis_client) == {}


@pytest.mark.parametrize(
    ("verb", "odd"),
    [(ADD, "many:closed"), (ADD, "many"), (REFUSED, None), (BROKEN, None)],
    ids=["closed", "of a wrong type", "refused", "broken"],
)
def test_what_the_verb_refuses_stays_in_flight(
    link: Link, redis_client: redis.Redis, verb: Verb, odd: str | None
) -> None:
    """Its end is not counted, so it must not be forgotten."""
    push(redis_client, "a")
    [(field, _)] = fetch(link)
    redis_client.lpush(INBOX, "listed")
    if odd is not None:
        redis_client.set(odd, "x")

    with pytest.raises(RedisReplyError):
        settle(link, (field, None, "a"), (b"9.0@default", b"listed", "b"), verb=verb)

    assert held(redis_client) == {field: b"a"}
    assert redis_client.lrange(INBOX, 0, -1) == [b"listed"]
    assert redis_client.type("many") != b"list"


def test_a_full_redis_is_worked_empty(new_redis_server: Callable[..., RedisServer]) -> None:
    """What a verb writes needs memory, and the jobs that leave free some."""
    server = new_redis_server()
    client, pool = server.client(), Pool(RedisSettings(server.url))
    link = pool.new_link()
    push(client, "a")
    [(field, _)] = fetch(link)
    client.config_set("maxmemory", 1)

    assert settle(link, (field, None, "a")) == 1

    link.close()
    pool.close()
    client.close()


def test_without_the_right_to_lrem_nothing_is_counted(link: Link, redis_client: redis.Redis) -> None:
    """The job could not leave its inbox, and each try would count it once more."""
    redis_client.lpush(INBOX, "listed")
    redis_client.execute_command("ACL", "SETUSER", "default", "-lrem")
    try:
        with pytest.raises(RedisReplyError):
            settle(link, (b"9.0@default", b"listed", "a"))
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+lrem")

    assert redis_client.exists("many") == 0
