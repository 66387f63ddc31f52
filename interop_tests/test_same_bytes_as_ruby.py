"""
A failed job leaves the same bytes: a Python worker runs what real Sidekiq fetched when it was recorded.

The calls of clients, the moves of the data API and the rest of the engine are held against the recordings of all
releases in `tests/`, part by part; here a whole process does it. Only what is drawn or read from a clock may differ.
"""

import json

import pytest
import redis

from interop_tests.conftest import StartPython
from interop_tests.support.ledger import masked, members
from interop_tests.support.recordings import Recording, recording, recordings
from interop_tests.support.ruby import RubyRelease
from tests.support.waiting import eventually

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
# How many seconds the jitter is drawn from, for each failure so far.
JITTER_SECONDS = {"rand30": 30, "rand_times": 10, "rand_range": 10}


@pytest.mark.parametrize("situation", RUNS)
def test_a_failure_leaves_the_bytes_that_ruby_left(
    situation: str, ruby_release: RubyRelease, redis_client: redis.Redis, start_python: StartPython
) -> None:
    """
    Python runs what Ruby fetched; the error's class is Python's, and everything else is Ruby's, including the
    delay.
    """
    recorded = recording(situation, ruby_release.payloads.name)
    redis_client.lpush(f"queue:{recorded.input['queue']}", recorded.before)

    with start_python("-q", recorded.input["queue"]):
        eventually(lambda: redis_client.zcard(recorded.key) == 1)

    [member] = members(redis_client, recorded.key)
    ours = json.loads(member)["error_class"].encode()
    assert masked(member.replace(ours, b"FixtureError")) == masked(recorded.members[0])
    least, most = delays_of_ruby(recorded, json.loads(member)["retry_count"])
    assert least <= delay_seconds(redis_client, recorded.key, member) <= most + 1


def delays_of_ruby(recorded: Recording, retry_count: int) -> tuple[float, float]:
    """The bounds of the delay for any draw of jitter, from the delay that one draw gave."""
    recorded_delay = recorded.scores[0] - recorded.input["now"]
    if recorded.key == "dead":
        return 0, 0
    kind = recorded.dialect.jitter
    if "retry_in" in recorded.situation and not recorded.dialect.custom_delay_jitter:
        return recorded_delay - 0.001, recorded_delay
    drawn = recorded.input["random"] * (1 if kind == "rand_range" else retry_count + 1)
    without_jitter = recorded_delay - drawn
    return without_jitter - 0.001, without_jitter + JITTER_SECONDS[kind] * (retry_count + 1)


def delay_seconds(client: redis.Redis, set_name: str, member: bytes) -> float:
    """How long after its last failure an entry is due."""
    payload = json.loads(member)
    failed_at = float(payload.get("retried_at", payload["failed_at"]))
    return float(client.zscore(set_name, member) or 0) - (failed_at / 1000 if failed_at > 1e11 else failed_at)


def test_malformed_payloads_go_to_the_dead_set_as_they_came(
    ruby_release: RubyRelease, redis_client: redis.Redis, start_python: StartPython
) -> None:
    """Text that is not a job is kept raw, as in Ruby, and the process continues."""
    recorded = [found for found in recordings(ruby_release.payloads.name) if found.situation.startswith("malformed_")]
    for found in recorded:
        redis_client.lpush("queue:default", found.before)

    worker = start_python("-q", "default")
    eventually(lambda: redis_client.zcard("dead") == len(recorded))

    assert sorted(members(redis_client, "dead")) == sorted(found.members[0] for found in recorded)
    assert worker.is_running
