"""Death handlers that were pending when a process ended."""

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.pending_deaths import PendingDeaths
from sidekiq_py.errors import LateDeathError, PoisonPillError
from sidekiq_py.hooks import Hooks
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire.dialect import Dialect

KEY = "sidekiq_py:deaths"
JOB = {"class": "Boom", "args": [1, "ä"], "jid": "x", "retry": False}

Make = Callable[..., PendingDeaths]


@pytest.fixture
def deaths() -> list[tuple[dict[str, Any], BaseException]]:
    """What death handlers were called with."""
    return []


@pytest.fixture
def make(pool: Pool, deaths: list[tuple[dict[str, Any], BaseException]]) -> Make:
    """`make(identity, of=…)` gives the pending death handlers of a process that has one; without one with `of=None`."""

    def begin(identity: str, of: type[BaseException] | None = BaseException, **options: Any) -> PendingDeaths:
        hooks = Hooks()
        if of is not None:
            hooks.on_death(lambda payload, error: deaths.append((payload, error)), of=of)
        return PendingDeaths(pool, Ownership(identity, [], 30), hooks, Dialect.unknown, **options)

    return begin


def record(deaths: PendingDeaths, client: redis.Redis, error: BaseException) -> None:
    """As the script does that ends a job."""
    for command in deaths.prepare(JOB, b"{}", error).commands:
        client.execute_command(*command)


def test_pending_handlers_of_a_process_that_has_gone_are_called_once(
    make: Make, link: Link, redis_client: redis.Redis, deaths: list[tuple[dict[str, Any], BaseException]]
) -> None:
    """With the payload as it was, and with the name and text of what the job failed by."""
    record(make("gone:1:a"), redis_client, ValueError("boom"))
    one, other = make("me:1:b"), make("me:2:c")

    taken = [*one.take_over(link)]
    redis_client.hset("sidekiq_py:owners", "me:1:b:1", "{}")

    assert [*other.take_over(link)] == []
    for pending, *death in taken:
        pending.announce(*death)
    [(payload, error)] = deaths
    assert payload == JOB
    assert isinstance(error, LateDeathError)
    assert (str(error), error.error_class) == ("boom", "ValueError")
    assert redis_client.exists(KEY) == 0
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_living_process_calls_its_handlers_itself(make: Make, link: Link, redis_client: redis.Redis) -> None:
    """One that stands in the registry, and this one."""
    living, own = make("alive:1:a"), make("me:1:b")
    record(living, redis_client, ValueError("boom"))
    record(own, redis_client, ValueError("boom"))
    redis_client.hset("sidekiq_py:owners", "alive:1:a:1", "{}")

    assert [*own.take_over(link)] == []


def test_who_has_no_handler_for_it_leaves_it_to_others(make: Make, link: Link, redis_client: redis.Redis) -> None:
    """Neither is anything written down by such a process, unless it is told to."""
    record(make("gone:1:a"), redis_client, ValueError("boom"))

    assert [*make("me:1:b", of=None).take_over(link)] == []
    assert [*make("me:2:c", of=PoisonPillError).take_over(link)] == []
    assert make("me:2:c", of=PoisonPillError).prepare(JOB, b"{}", ValueError("boom")).commands == ()
    assert make("me:3:d", of=None, must_keep=True).prepare(JOB, b"{}", ValueError("boom")).commands != ()
    assert redis_client.hlen(KEY) == 1


def test_a_poison_pill_is_told_as_such(make: Make, link: Link, redis_client: redis.Redis) -> None:
    """So that a handler for these alone is called."""
    record(make("gone:1:a"), redis_client, PoisonPillError())

    [(_, _, error)] = make("me:1:b", of=PoisonPillError).take_over(link)

    assert isinstance(error, PoisonPillError)
    assert str(error) == str(PoisonPillError())


def test_what_is_no_death_stays_and_is_named_once(
    make: Make, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are announced."""
    redis_client.hset(KEY, mapping={"odd": "x", "\N{SNOWMAN} 1": b"{}\n{}", "gone:9:z 1": b'{"error_class":1}\n\xff'})
    redis_client.hset(KEY, "gone:9:z 2", "[" * 5000)
    record(make("gone:1:a"), redis_client, ValueError("boom"))
    deaths = make("me:1:b")

    with caplog.at_level(logging.ERROR, "sidekiq"):
        assert len([*deaths.take_over(link)]) == 1
        assert [*deaths.take_over(link)] == []

    assert len([line for line in caplog.records if "is not the death of a job" in line.getMessage()]) == 4
    assert redis_client.hlen(KEY) == 5


def test_a_key_of_a_wrong_type_is_named_and_stops_nothing(
    make: Make, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Recovery goes on after it; it is told once."""
    redis_client.set(KEY, "x")
    deaths = make("me:1:b")

    with caplog.at_level(logging.ERROR, "sidekiq"):
        assert [*deaths.take_over(link), *deaths.take_over(link)] == []

    [line] = [line.getMessage() for line in caplog.records if line.name == "sidekiq"]
    assert "check that the key sidekiq_py:deaths is a hash" in line


def test_a_payload_that_cannot_be_written_again_is_told_by_its_own_bytes(
    make: Make, link: Link, redis_client: redis.Redis
) -> None:
    """A block may have put anything into it."""
    deaths = make("gone:1:a")
    commands = deaths.prepare({**JOB, "odd": object()}, b'{"class":"Boom","args":[2]}', ValueError("boom")).commands
    for command in commands:
        redis_client.execute_command(*command)

    [(_, payload, _)] = make("me:1:b").take_over(link)

    assert payload == {"class": "Boom", "args": [2]}
