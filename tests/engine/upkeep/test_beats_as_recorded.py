"""Heartbeats, signals and execution metrics as each recorded release of real Sidekiq writes them: all of Redis."""

import time
from functools import partial
from typing import Any

import pytest
import redis

from interop_tests.support.recordings import (
    Recording,
    database_of,
    keep_order_of_hashes,
    named,
    recording,
    recordings,
    recordings_of,
)
from sidekiq_py.clock import utc_day
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import job_counts, settle_script
from sidekiq_py.redis_access.processes import beats
from sidekiq_py.redis_access.processes.beats import Beat
from sidekiq_py.wire.work import dump_work
from tests.support.time_to_live import was_given

IDENTITY = "fixture-host:4242:5eed5eed5eed"
ALL = recordings()
# Their hash is compared with all its fields; how `info` is made: tests/wire/test_recorded_payloads.py.
BEATS = ("heartbeat_info", "heartbeat_again", "heartbeat_quiet", "heartbeat_weights", "heartbeat_random")


def beat_of(found: Recording) -> Beat:
    """What a process of ours would say, with Ruby's `info`."""
    fields = dict(found.members if found.key == IDENTITY else found.elsewhere[IDENTITY].members)
    return Beat(
        identity=IDENTITY,
        info=fields[b"info"],
        concurrency=found.input["concurrency"],
        busy=0,
        is_quiet=found.situation == "heartbeat_quiet",
        rss_kb=found.input["rss_kb"],
        now=found.input["now"],
        work={},
        rtt_us=found.input["rtt_us"],
    )


def beaten(found: Recording, beat: Beat, pool: Pool, client: redis.Redis) -> Any:
    """Redis after a beat of ours, without the counters: ours are written as each job ends."""
    keep_order_of_hashes(client)
    beats.beat(pool, beat, dialect=found.dialect)
    return database_of(client)


def without_counters(found: Recording) -> Any:
    """Ruby up to 6.5 writes counters with each beat, of nothing too."""
    return {name: held for name, held in found.database.items() if not name.startswith(("stat:", "queue"))}


@pytest.mark.parametrize("found", named(*[found for found in ALL if found.situation in BEATS]))
def test_a_beat_leaves_what_ruby_left(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """The process's hash, field by field in Ruby's order, and its place in the list."""
    assert beaten(found, beat_of(found), pool, redis_client) == without_counters(found)


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_work")))
def test_a_beat_shows_what_runs_as_ruby_shows_it(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """Under the key of the release, by thread."""
    [payload] = found.input["before"]
    entry = dump_work("default", payload.encode(), 1_700_000_000, dialect=found.dialect)
    beat = beat_of(found)._replace(busy=1, work={"tid000": entry})

    assert beaten(found, beat, pool, redis_client) == without_counters(found)


@pytest.mark.parametrize("found", named(*recordings_of("process_gone")))
def test_a_process_that_leaves_leaves_what_ruby_leaves(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """Its own hash, which expires by itself."""
    beaten(found, beat_of(found), pool, redis_client)

    beats.clear(pool, IDENTITY, dialect=found.dialect)

    assert database_of(redis_client) == without_counters(found)


COUNTS = [*recordings_of("heartbeat_counts"), *recordings_of("heartbeat_counts_of_success")]


@pytest.mark.parametrize("found", named(*COUNTS))
def test_jobs_are_counted_as_ruby_counts_them(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """A failure is processed too; the days' counters expire after five years. Ruby also writes counts of zero."""
    given, began = found.input, time.monotonic()
    for number in range(given["processed"]):
        counters = job_counts.count_commands(given["now"], failed=number < given["failed"])
        pool.run(partial(settle_script.write, vital=(), counters=counters))

    ours = database_of(redis_client)
    theirs = {name: held for name, held in found.database.items() if name.startswith("stat:")}
    assert ours == {name: held for name, held in theirs.items() if held.members != [b"0"]}
    key = f"stat:processed:{utc_day(given['now'])}"
    assert was_given(redis_client, key, 5 * 365 * 24 * 60 * 60, since=began)


# The first look at the clock is the start of a run, the second its end.
METRICS = [found for found in ALL if found.input.get("step") == "flush_metrics"]


@pytest.mark.parametrize("found", named(*METRICS))
def test_runs_are_measured_as_ruby_measures_them(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """Hashes and histograms, key by key."""
    given, began = found.input, time.monotonic()
    metrics = ExecutionMetrics()
    for args in given["runs"]:
        metrics.record({"class": given["class"]}, given["run_seconds"] + 1e-9, args[0] != "raise")

    metrics.flush(pool, now=given["now"], dialect=found.dialect)

    theirs = {name: held for name, held in found.database.items() if not name.startswith(("queue", "retry"))}
    assert in_no_order(database_of(redis_client)) == in_no_order(theirs)
    for command, key, seconds in found.sent("EXPIRE"):
        assert command == b"EXPIRE"
        assert was_given(redis_client, key, int(seconds), since=began)


def in_no_order(database: Any) -> Any:
    """Counters of a hash are added to in any order."""
    return {name: (held.type, sorted(held.members)) for name, held in database.items()}


def test_each_release_has_its_period_of_beats() -> None:
    """The recordings hold one beat each; how far apart they are is known from elsewhere."""
    assert [recording("heartbeat_info", release).dialect.beat_seconds for release in ("6.0.4", "6.4.1")] == [5, 5]
    assert [recording("heartbeat_info", release).dialect.beat_seconds for release in ("7.3.2", "8.1.7")] == [10, 10]
