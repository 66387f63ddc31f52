"""Counts of successes are written once, whatever becomes of the replies."""

from contextlib import suppress
from typing import Any

import pytest
import redis

from sidekiq_py.clock import now_seconds, utc_day
from sidekiq_py.engine.run.processed_count import ProcessedCount
from sidekiq_py.errors import ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool


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
