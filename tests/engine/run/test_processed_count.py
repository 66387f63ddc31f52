"""Counts of successes are written once, whatever becomes of the replies."""

from contextlib import suppress
from typing import Any

import pytest
import redis

from sidekiq_py.clock import monotonic, now_seconds, utc_day
from sidekiq_py.engine.run.processed_count import ProcessedCount
from sidekiq_py.errors import ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from tests.support.waiting import eventually


def written(client: redis.Redis) -> tuple[int, int]:
    """In all, and of the day."""
    day = utc_day(now_seconds())
    return int(client.get("stat:processed") or 0), int(client.get(f"stat:processed:{day}") or 0)  # type: ignore[arg-type]


def test_what_is_added_up_is_written_by_one_flush(pool: Pool, redis_client: redis.Redis) -> None:
    """With the day's count, which lives for years."""
    counts = ProcessedCount(pool)
    counts.add(3)
    counts.add(4)

    counts.flush()
    counts.flush()

    assert written(redis_client) == (7, 7)
    assert redis_client.ttl(f"stat:processed:{utc_day(now_seconds())}") > 10**8  # type: ignore[operator]


def test_a_counter_of_a_foreign_type_keeps_no_other_from_counting(pool: Pool, redis_client: redis.Redis) -> None:
    """Another program may have written to it."""
    redis_client.lpush("stat:processed", "not a number")
    counts = ProcessedCount(pool)
    counts.add(3)

    counts.flush()

    assert redis_client.get(f"stat:processed:{utc_day(now_seconds())}") == b"3"


def test_a_busy_process_writes_seldom(pool: Pool, redis_client: redis.Redis) -> None:
    """Once a period, however many jobs end in it."""
    counts = ProcessedCount(pool, after_seconds=0.0, period_seconds=0.2)
    redis_client.config_resetstat()
    began = monotonic()
    counts.start()
    jobs = 0
    while monotonic() < began + 0.5:
        counts.add(1)
        jobs += 1
    counts.stop()
    counts._thread.join(10)
    most = (monotonic() - began) / 0.2 + 1

    assert not counts._thread.is_alive()
    # Two in each write: in all, and of the day.
    assert redis_client.info("commandstats")["cmdstat_incrby"]["calls"] / 2 <= most
    counts.flush()
    assert written(redis_client) == (jobs, jobs)


def test_a_stop_that_comes_as_a_write_begins_ends_the_thread(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for the count that is about to be written."""
    counts = ProcessedCount(pool, after_seconds=0.0, period_seconds=0.0)

    def stopped_meanwhile(timeout: float) -> bool:
        counts.stop()
        return False

    monkeypatch.setattr(counts._end, "wait", stopped_meanwhile)
    counts.start()
    counts.add(1)

    counts._thread.join(10)
    assert not counts._thread.is_alive()


def test_a_process_with_few_jobs_writes_soon(pool: Pool, redis_client: redis.Redis) -> None:
    """Where the last write was long ago, a count does not wait for a period."""
    counts = ProcessedCount(pool, after_seconds=0.0, period_seconds=0.0)
    counts.start()

    for total in (1, 2, 3):
        counts.add(1)
        eventually(lambda total=total: written(redis_client) == (total, total))

    counts.stop()


@pytest.mark.parametrize("is_done", [True, False])
def test_after_a_lost_reply_a_count_is_written_once(
    is_done: bool, pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether Redis had done it or not."""
    counts = ProcessedCount(pool)
    counts.add(5)
    send, lost = counts._send, [1, 2, 3]

    def lose_replies(link: Link, write: Any) -> None:
        if is_done or not lost:
            send(link, write)
        if lost and lost.pop():
            raise ReplyLostError("the connection broke before Redis answered")

    monkeypatch.setattr(counts, "_send", lose_replies)
    while lost:
        with suppress(ReplyLostError):
            counts.flush()
    counts.add(2)

    counts.flush()

    assert written(redis_client) == (7, 7)
