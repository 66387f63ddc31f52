"""What is noted of queues once a minute, and how it is read."""

import json
from datetime import UTC, datetime

import redis

from sidekiq_py.api import OverviewReader
from sidekiq_py.engine.upkeep.queue_trends import NOTE_SIZES, note_sizes
from sidekiq_py.redis_access.connection.pool import Pool
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

NOON = 1_790_000_040
"""The start of a minute."""


def enqueue(client: redis.Redis, queue: str, enqueued_at: float) -> None:
    """One more job that waits."""
    client.sadd("queues", queue)
    client.lpush(f"queue:{queue}", json.dumps({"class": "HardJob", "enqueued_at": enqueued_at}))


def trend(pool: Pool, queue: str, now: float) -> list[tuple[int, int, float]]:
    """Minutes since noon, sizes and latencies."""
    points = OverviewReader(pool=pool).read(now, trends_of=lambda names: [queue]).trends[queue]
    return [(int(point.at.timestamp() - NOON) // 60, point.size, point.latency) for point in points]


def test_size_and_latency_are_noted_each_minute(pool: Pool, redis_client: redis.Redis) -> None:
    """The next round is due when the next minute begins."""
    enqueue(redis_client, "low", NOON - 30)
    pauses = [note_sizes(pool, NOON + 12.5)]
    enqueue(redis_client, "low", NOON + 50)
    pauses.append(note_sizes(pool, NOON + 60))

    assert trend(pool, "low", NOON + 61) == [(0, 1, 42.5), (1, 2, 90.0)]
    assert pauses == [47.75, 60.25]


def test_a_pause_that_ends_a_little_early_does_not_note_a_minute_twice(pool: Pool, redis_client: redis.Redis) -> None:
    """A clock that is being set right runs some milliseconds slower than the one that measures pauses."""
    enqueue(redis_client, "low", NOON)
    at, seen = NOON + 12.5, []
    for _ in range(20):
        seen.append(int(at - NOON) // 60)
        at += min(note_sizes(pool, at), NOTE_SIZES.every_seconds) - 0.03

    assert seen == list(range(20))


def test_an_empty_queue_counts_until_two_hours_behind_its_last_job(pool: Pool, redis_client: redis.Redis) -> None:
    """One that never had a job when somebody looked costs nothing."""
    enqueue(redis_client, "low", NOON)
    redis_client.sadd("queues", "idle")
    note_sizes(pool, NOON)
    redis_client.delete("queue:low")
    redis_client.expire("sidekiq_py:trend:low", 60)

    note_sizes(pool, NOON + 60)

    assert trend(pool, "low", NOON + 61) == [(0, 1, 0.0), (1, 0, 0.0)]
    assert redis_client.ttl("sidekiq_py:trend:low") <= 60
    assert not redis_client.exists("sidekiq_py:trend:idle")


def test_two_hours_are_kept(pool: Pool, redis_client: redis.Redis) -> None:
    """And a second process that notes the same minute changes nothing."""
    enqueue(redis_client, "low", NOON)
    for minute in range(125):
        note_sizes(pool, NOON + 60 * minute)
    note_sizes(pool, NOON + 60 * 124 + 1)

    assert redis_client.llen("sidekiq_py:trend:low") == 120
    assert [minute for minute, _, _ in trend(pool, "low", NOON + 60 * 124)] == list(range(6, 125))


def test_junk_in_redis_hides_no_other_queue(pool: Pool, redis_client: redis.Redis) -> None:
    """Keys of a foreign type, bytes that are no job, and samples that are none."""
    enqueue(redis_client, "low", NOON)
    redis_client.sadd("queues", b"\xff", "foreign", "junk", "trend")
    redis_client.set("queue:foreign", "x")
    redis_client.lpush("queue:junk", b"\xff", "[1]")
    redis_client.lpush("queue:trend", "{}")
    redis_client.set("sidekiq_py:trend:trend", "x")

    note_sizes(pool, NOON)
    redis_client.rpush("sidekiq_py:trend:low", "x", b"\xff", f"{NOON}:nan:inf", "1:2", f"{NOON + 999}:1:1.0", "9" * 99)

    assert trend(pool, "low", NOON + 1) == [(0, 1, 0.0)]
    assert trend(pool, "junk", NOON + 1) == [(0, 2, 0.0)]
    assert trend(pool, "trend", NOON + 1) == []


def test_a_worker_notes_it_for_the_fleet(redis_client: redis.Redis, redis_url: str) -> None:
    """At its start, once it is the one that looks after due jobs."""
    enqueue(redis_client, "elsewhere", datetime.now(UTC).timestamp() - 90)

    with WorkerProcess("interop_tests.support.python_jobs", redis_url=redis_url):
        eventually(lambda: redis_client.lrange("sidekiq_py:trend:elsewhere", 0, -1))

    # A second one is there if a minute has begun before the worker was stopped.
    sample, *_ = redis_client.lrange("sidekiq_py:trend:elsewhere", 0, -1)
    assert sample.split(b":")[1] == b"1"
