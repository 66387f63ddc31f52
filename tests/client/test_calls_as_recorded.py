"""
Every call of a client, byte for byte as each release of real Sidekiq pushed it; only the jid and the times differ.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Recording, named, recordings
from sidekiq_py.errors import SidekiqError
from sidekiq_py.jobs.handles import Handle
from tests.client.conftest import Pushed, masked

# Symbols are a type of Ruby's, and so are keys that are no strings; there is no call in Python that means the same.
# What is current goes along by middleware of its own (tests/contrib).
RUBY_ONLY = ("perform_async_symbols_", "perform_async_numbers_as_keys", "current_attributes")
CALLS = [found for found in recordings() if found.is_push and not found.situation.startswith(RUBY_ONLY)]
# A relative number and a moment are the same call in Ruby; which one it is decides its size.
LEAST_MOMENT = 1_000_000_000
RECORDED_NOW = 1_700_000_000.123456
# The calls were recorded in 2023, and what was to come is past: moments are put off by some sixty years.
LATER = 2_000_000_000
# Where Ruby takes what is of no use, or a later release of it does better, ours does as the better one.
DIFFERENT_ON_PURPOSE = {
    # Its Web UI cannot open a queue of no name; since 6.4 it is refused.
    ("queue_of_no_name", "6.0.4"),
    # All jobs of a bulk push went to the queue of the first one before 8.0, whatever middleware had said.
    ("middleware_moves_each_of_bulk", "6.0.4"),
    ("middleware_moves_each_of_bulk", "6.4.1"),
    ("middleware_moves_each_of_bulk", "7.3.2"),
}


def is_refused(found: Recording) -> bool:
    """Whether Ruby raised an error."""
    return "refused" in found.input


WRITTEN = [
    found for found in CALLS if not is_refused(found) and (found.situation, found.sidekiq) not in DIFFERENT_ON_PURPOSE
]
REFUSED = [found for found in CALLS if is_refused(found)]


def handle_of(given: Mapping[str, Any]) -> Handle[...]:
    """The job that was called, with the options of its Ruby class."""
    handle: Handle[...] = sidekiq.ruby_job(given["job"], **given["options"])
    if "set" not in given:
        return handle
    options = dict(given["set"])
    if "wait_until" in options:
        options["wait_until"] += LATER
    return handle.set(options)


def call(given: Mapping[str, Any]) -> object:
    """Make the recorded call."""
    match given["call"]:
        case "perform_async":
            return handle_of(given).perform_async(*given["args"])
        case "perform_in" | "perform_at":
            return handle_of(given).perform_in(put_off(given["interval"]), *given["args"])
        case "perform_bulk":
            return handle_of(given).perform_bulk(given["args"], **given.get("bulk_options", {}))
    item = dict(given["item"])
    if "options" in given:
        item["class"] = sidekiq.ruby_job(item["class"], **given["options"])
    client = sidekiq.Client()
    return client.push(item) if given["call"] == "push" else client.push_bulk(item)


def put_off(interval: float) -> float:
    """A moment that lay ahead when it was recorded lies ahead now."""
    return interval + LATER if interval > RECORDED_NOW else interval


def add_middleware(given: Mapping[str, Any]) -> None:
    """The client middleware of the recording, if it had one."""
    if keys := given.get("middleware_adds"):
        sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload.update(keys) or call_next())
    if "middleware_stops" in given:
        sidekiq.client_middleware.add(stop_even)
    if "middleware_moves" in given:
        sidekiq.client_middleware.add(move_each)


def stop_even(_job: object, payload: dict[str, Any], _queue: str, call_next: Callable[[], Any]) -> Any:
    """Stop jobs whose last argument is even."""
    return call_next() if payload["args"][-1] % 2 else None


def move_each(_job: object, payload: dict[str, Any], _queue: str, call_next: Callable[[], Any]) -> Any:
    """Each job to a queue of its own."""
    payload["queue"] = f"q{payload['args'][-1]}"
    return call_next()


def is_relative(given: Mapping[str, Any]) -> bool:
    """Whether the score is counted from the moment of the call."""
    wait, spread = given.get("set", {}).get("wait"), {**given.get("bulk_options", {}), **given.get("item", {})}
    return wait is not None or "spread_interval" in spread or given.get("interval", LEAST_MOMENT) < LEAST_MOMENT


def configure(found: Recording, redis_url: str) -> None:
    """A program that writes as the recorded release."""
    sidekiq.configure(
        redis_url=redis_url, sidekiq_version=found.sidekiq, default_job_options=found.input.get("defaults", {})
    )
    add_middleware(found.input)


@pytest.mark.parametrize("found", named(*WRITTEN))
def test_a_call_leaves_what_ruby_left(
    found: Recording, redis_url: str, redis_client: redis.Redis, pushed: Pushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same members in the same order, with the same scores, in the same keys."""
    configure(found, redis_url)
    monkeypatch.setattr(random, "random", lambda: 0.25)

    call(found.input)

    assert {name.decode() for name in redis_client.scan_iter()} == set(found.elsewhere) | (
        {found.key} if found.members else set()
    )
    if found.type == "zset":
        assert_scheduled(found, pushed.schedule())
    else:
        queue = found.key.removeprefix("queue:")
        assert [masked(raw) for raw in pushed.queue(queue)] == [masked(raw) for raw in reversed(found.members)]


# Since 8.0 Ruby names all queues of a bulk push in one SADD; ours names each beside its own LPUSH.
SEVERAL_QUEUES = "middleware_moves_each_of_bulk"


@pytest.mark.parametrize("found", named(*[found for found in WRITTEN if found.situation != SEVERAL_QUEUES]))
def test_a_call_sends_the_commands_that_ruby_sends(found: Recording, redis_url: str, redis_client: redis.Redis) -> None:
    """One after another in one pipeline, without the MULTI and EXEC that 6.0 puts around them."""
    configure(found, redis_url)
    server: Any = redis_client

    with server.monitor() as monitor:
        call(found.input)
        redis_client.echo("over")
        ours = list(takewhile(lambda name: name != "ECHO", names_of(monitor)))

    theirs = [command[0] for command in found.commands if command[0] not in ("MULTI", "EXEC")]
    assert [name for name in ours if name not in OPENING] == theirs


# How a connection opens, and is found to be alive.
OPENING = ("HELLO", "CLIENT", "SELECT", "PING")


def names_of(monitor: Any) -> Iterator[str]:
    """The commands that Redis gets, by name."""
    return (given["command"].split(" ", 1)[0].upper() for given in monitor.listen())


def assert_scheduled(found: Recording, entries: list[tuple[bytes, float]]) -> None:
    """Members of one score stand in the order of their jids, which were drawn."""
    assert sorted(masked(raw) for raw, _ in entries) == sorted(masked(raw) for raw in found.members)
    if not is_relative(found.input):
        moved = found.input.get("interval") or found.input.get("set", {}).get("wait_until")
        off = LATER if moved else 0
        assert [score for _, score in entries] == [score + off for score in found.scores]


@pytest.mark.parametrize("found", named(*REFUSED))
def test_what_ruby_refuses_we_refuse(found: Recording, redis_url: str, redis_client: redis.Redis) -> None:
    """With our own error, and nothing is written."""
    configure(found, redis_url)

    with pytest.raises(SidekiqError):
        call(found.input)

    assert redis_client.dbsize() == 0


@pytest.mark.parametrize("situation", ["queue_of_no_name", "refused_bulk_at_of_another_size"])
def test_what_only_later_releases_refuse_is_refused_for_all(situation: str, redis_url: str) -> None:
    """Sidekiq 6.0 pushes to a queue that its Web UI cannot open, and lets Redis find that a moment is missing."""
    [found] = [found for found in recordings("6.4.1") if found.situation == situation]
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.0.4")

    with pytest.raises(SidekiqError):
        call(found.input)


@pytest.mark.parametrize("release", ["6.0.4", "6.4.1", "7.3.2"])
def test_each_job_of_a_bulk_push_goes_where_middleware_sent_it(release: str, redis_url: str, pushed: Pushed) -> None:
    """Before 8.0 Ruby sends all of them to the queue of the first, where their workers do not look."""
    [found] = [found for found in recordings(release) if found.situation == "middleware_moves_each_of_bulk"]
    configure(found, redis_url)

    call(found.input)

    assert [len(pushed.queue(queue)) for queue in ("q1", "q2", "q3")] == [1, 1, 1]
    assert len(found.members) == 3
