"""
The same call leaves the same bytes: each push that was recorded from real Sidekiq is made again in Python.

Only what is drawn or read from a clock may differ (`masked`), and how it is spelled is checked on the way.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import StartPython
from interop_tests.support.ledger import masked, members, raw_jobs
from interop_tests.support.recordings import Recording, recording, recordings
from tests.support.waiting import eventually

# Symbols are a type of Ruby's; there is no call in Python that means the same.
RUBY_ONLY = {"perform_async_symbols_become_strings"}

PUSHES = [recorded for recorded in recordings() if recorded.is_push and recorded.situation not in RUBY_ONLY]
RUNS = [
    "first_failure",
    "second_failure",
    "first_failure_retry_queue",
    "first_failure_retry_in",
    "second_failure_retry_in",
    "first_failure_scheduled",
    "retry_absent_is_taken_from_the_class",
    "retry_as_text_counts_as_25",
    "retry_count_at_the_limit",
    "unknown_keys_first_failure",
    "unknown_keys_second_failure",
    "foreign_spelling_first_failure",
    "exhausted_at_once",
    "exhausted_after_three_retries",
    "queue_differs_from_where_it_was_fetched",
]
MALFORMED = [recorded for recorded in recordings() if recorded.situation.startswith("malformed_")]


@pytest.mark.usefixtures("ruby_release", "python_client")
@pytest.mark.parametrize("recorded", PUSHES, ids=lambda recorded: recorded.situation)
def test_a_push_leaves_the_bytes_that_ruby_left(recorded: Recording, redis_client: redis.Redis) -> None:
    """Payloads, their order in the key, and the rest of the keyspace."""
    push(recorded)

    expected = [masked(member) for member in recorded.members]
    assert sorted(written(redis_client, recorded)) == sorted(expected)
    assert recorded.type == "zset" or written(redis_client, recorded) == expected
    keys = {recorded.key} if recorded.members else set()
    assert {name.decode() for name in redis_client.scan_iter()} == keys | set(recorded.elsewhere)


@pytest.mark.usefixtures("ruby_release")
@pytest.mark.parametrize("situation", RUNS)
def test_a_failure_leaves_the_bytes_that_ruby_left(
    situation: str, redis_client: redis.Redis, start_python: StartPython
) -> None:
    """What Ruby fetched is run by Python; the error's class is Python's, the rest is Ruby's, and so is the delay."""
    recorded = recording(situation)
    redis_client.lpush(f"queue:{recorded.input['queue']}", recorded.before)

    with start_python("-q", recorded.input["queue"]):
        eventually(lambda: redis_client.zcard(recorded.key) == 1)

    [member] = members(redis_client, recorded.key)
    ours = json.loads(member)["error_class"].encode()
    assert masked(member.replace(ours, b"FixtureError")) == masked(recorded.members[0])
    least, most = delays_of_ruby(recorded, json.loads(member)["retry_count"])
    assert least <= delay_seconds(redis_client, recorded.key, member) <= most + 1


def delays_of_ruby(recorded: Recording, retry_count: int) -> tuple[float, float]:
    """The bounds of the delay for any draw of jitter from 0 to 9, from the delay that one draw gave."""
    recorded_delay = recorded.scores[0] - recorded.input["now"]
    if recorded.key == "dead":
        return 0, 0
    without_jitter = recorded_delay - recorded.input["random"] * (retry_count + 1)
    return without_jitter - 0.001, without_jitter + 9 * (retry_count + 1)


def delay_seconds(client: redis.Redis, set_name: str, member: bytes) -> float:
    """How long after its last failure an entry is due."""
    payload = json.loads(member)
    return float(client.zscore(set_name, member) or 0) - float(payload.get("retried_at", payload["failed_at"]))


def test_malformed_payloads_go_to_the_dead_set_as_they_came(
    redis_client: redis.Redis, start_python: StartPython
) -> None:
    """Text that is no job is kept raw, as Ruby keeps it, and the process goes on."""
    for recorded in MALFORMED:
        redis_client.lpush("queue:default", recorded.before)

    worker = start_python("-q", "default")
    eventually(lambda: redis_client.zcard("dead") == len(MALFORMED))

    assert sorted(members(redis_client, "dead")) == sorted(recorded.members[0] for recorded in MALFORMED)
    assert worker.is_running


def push(recorded: Recording) -> None:
    """Make the recorded call in Python."""
    call = recorded.input
    with middleware_that_adds(call.get("middleware_adds", {})):
        if "item" in call:
            push_item(call["call"], dict(call["item"]), call.get("options"))
        elif call["call"] == "perform_bulk":
            options = dict(call.get("set", {}))
            at = {"at": options.pop("at")} if "at" in options else {}
            job_of(call, options).perform_bulk(call["args"], **at)
        else:
            interval = [since_now(call["interval"], call["now"])] if "interval" in call else []
            getattr(job_of(call, call.get("set", {})), call["call"])(*interval, *call["args"])


def job_of(call: dict[str, Any], set_options: dict[str, Any]) -> Any:
    """The handle of the recorded class with its options, after `.set(...)` if there was one."""
    job = sidekiq.ruby_job(call["job"], **call["options"])
    if "wait_until" in set_options:
        set_options = {**set_options, "wait_until": since_now(set_options["wait_until"], call["now"])}
    return job.set(**set_options) if set_options else job


def push_item(method: str, item: dict[str, Any], options: dict[str, Any] | None) -> None:
    """`Client.push` and `Client.push_bulk`; a class with options was pushed as a class."""
    if options is not None:
        item["class"] = sidekiq.ruby_job(item["class"], **options)
    getattr(sidekiq.Client(), method)(item)


def since_now(interval: float, recorded_now: float) -> float:
    """A moment after the recording's clock becomes one that is as far ahead of ours."""
    is_ahead_of_the_recording_alone = recorded_now < interval < time.time()
    return time.time() + (interval - recorded_now) if is_ahead_of_the_recording_alone else interval


@contextmanager
def middleware_that_adds(keys: dict[str, Any]) -> Iterator[None]:
    """A client middleware that adds keys, as the recording's did."""

    def add(_job: object, payload: dict[str, Any], _queue: str, call_next: Callable[[], Any]) -> Any:
        payload.update(keys)
        return call_next()

    if not keys:
        yield
        return
    sidekiq.client_middleware.add(add)
    try:
        yield
    finally:
        sidekiq.client_middleware.remove(add)


def written(client: redis.Redis, recorded: Recording) -> list[bytes]:
    """What the key holds now, without what differs each time. Of one score, Redis orders members by their jids."""
    if recorded.type == "list":
        return [masked(member) for member in raw_jobs(client, recorded.key.removeprefix("queue:"))]
    return [masked(member) for member in members(client, recorded.key)]
