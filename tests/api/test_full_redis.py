"""A Redis whose memory is full can still be looked at and emptied, which is the way out of it."""

from collections.abc import Iterator

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import DeadSet, Queue
from sidekiq_py.errors import RedisReplyError

JOB = sidekiq.ruby_job("Row")


@pytest.fixture(autouse=True)
def full(redis_url: str, redis_client: redis.Redis) -> Iterator[None]:
    """Three jobs wait, and one is dead."""
    sidekiq.configure(redis_url=redis_url)
    JOB.perform_bulk([[1], [2], [3]])
    redis_client.zadd("dead", {"{}": 1})
    redis_client.config_set("maxmemory", 1)
    yield
    redis_client.config_set("maxmemory", 0)


def test_the_jobs_of_a_queue_are_listed() -> None:
    """Each page is read in a transaction, of which a full Redis refuses every command."""
    assert [job.args for job in Queue()] == [[3], [2], [1]]


def test_a_queue_is_cleared(redis_client: redis.Redis) -> None:
    """So is a set."""
    assert (Queue().clear(), DeadSet().clear()) == (3, 1)
    assert redis_client.keys("*") == []


def test_what_needs_memory_is_refused() -> None:
    """As ever."""
    with pytest.raises(RedisReplyError, match="OOM"):
        DeadSet().kill("{}")
