"""The local buffer: what goes back to the queues keeps its order."""

from collections.abc import Iterator

import pytest
import redis

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.redis_access.connection.pool import Pool
from tests.engine.fetch.in_flight_jobs import push

LATE_SECONDS = 0.020


@pytest.fixture
def fetcher(pool: Pool) -> Iterator[ReliableFetcher]:
    """Of two queues in strict order; no thread runs, so that nothing comes or goes unasked."""
    capsule = CapsuleConfig(queues=(QueueConfig("high"), QueueConfig("low")))
    one = ReliableFetcher(
        capsule, Config(), pool, Ownership("me:1:abc", capsule.queue_names, 30), report=lambda error, context: None
    )
    yield one
    one.close()


def fetch(fetcher: ReliableFetcher, count: int) -> None:
    """Fill the buffer."""
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(count)


def test_a_late_job_does_not_leave_less_urgent_ones_before_it(
    fetcher: ReliableFetcher, redis_client: redis.Redis
) -> None:
    """Fetched a moment after it, they would start while it waits in its queue again."""
    push(redis_client, "h1", "h2", queue="high")
    push(redis_client, "l1", "l2", "l3", queue="low")
    fetch(fetcher, 2)
    for unit in fetcher._buffer.jobs:
        unit.fetched_at -= 1
    fetch(fetcher, 4)

    fetcher._buffer.give_back(LATE_SECONDS)

    assert list(fetcher._buffer.jobs) == []
    assert redis_client.rpop("queue:high", 9) == [b"h1", b"h2"]
    assert redis_client.rpop("queue:low", 9) == [b"l1", b"l2", b"l3"]


def test_a_job_that_arrived_late_goes_back_alone(fetcher: ReliableFetcher, redis_client: redis.Redis) -> None:
    """Those before it are still in time."""
    push(redis_client, "h1", queue="high")
    push(redis_client, "l1", queue="low")
    fetch(fetcher, 2)
    fetcher._buffer.jobs[-1].fetched_at -= 1

    fetcher._buffer.give_back(LATE_SECONDS)

    assert [unit.raw for unit in fetcher._buffer.jobs] == [b"h1"]
    assert redis_client.lrange("queue:low", 0, -1) == [b"l1"]


def test_what_is_in_time_stays(fetcher: ReliableFetcher, redis_client: redis.Redis) -> None:
    """Until everything is asked for, as when the worker is quieted."""
    push(redis_client, "h1", "h2", queue="high")
    fetch(fetcher, 2)

    fetcher._buffer.give_back(LATE_SECONDS)
    assert len(fetcher._buffer.jobs) == 2
    fetcher._buffer.give_back(None)
    assert len(fetcher._buffer.jobs) == 0
    assert redis_client.rpop("queue:high", 9) == [b"h1", b"h2"]


def test_late_jobs_stay_that_will_start_soon(fetcher: ReliableFetcher, redis_client: redis.Redis) -> None:
    """Where CPU is short, all jobs are late, and fetching them once more costs it, too. If none starts, all go back."""
    push(redis_client, *"abcdefg", queue="high")
    fetch(fetcher, 7)
    for unit in fetcher._buffer.jobs:
        unit.fetched_at -= 1000
    # Three jobs start within 100 seconds and a little.
    fetcher._buffer._checked_at -= 100
    for _ in range(3):
        fetcher._buffer.jobs.popleft()

    fetcher._buffer.give_back(100)
    assert [unit.raw for unit in fetcher._buffer.jobs] == [b"d", b"e"]

    fetcher._buffer.give_back(100)
    assert not fetcher._buffer.jobs
    assert redis_client.rpop("queue:high", 9) == [b"d", b"e", b"f", b"g"]


def test_what_was_fetched_ahead_waits_its_time(fetcher: ReliableFetcher, redis_client: redis.Redis) -> None:
    """Even if jobs have become longer since. Otherwise a fleet that is short of CPU gives many jobs back early."""
    size = fetcher._buffer.size
    for _ in range(100):
        size.fetched(0.1, is_full=False)
        size.ran(0.001)
    push(redis_client, "h1", "h2", queue="high")
    fetch(fetcher, 1)
    fetcher._buffer.jobs.popleft()
    fetch(fetcher, 1)
    for _ in range(100):
        size.ran(5.0)
    fetch(fetcher, 2)
    for unit in fetcher._buffer.jobs:
        unit.fetched_at -= 0.1

    fetcher._tick()

    assert [unit.raw for unit in fetcher._buffer.jobs] == [b"h2"]


@pytest.mark.parametrize(("seconds", "left"), [(0.001, [b"h2"]), (5.0, [])])
def test_on_a_slow_connection_only_short_jobs_wait_longer(
    fetcher: ReliableFetcher, redis_client: redis.Redis, seconds: float, left: list[bytes]
) -> None:
    """Behind long jobs, one that has arrived would only wait before it goes back to where others find it."""
    size = fetcher._buffer.size
    for _ in range(100):
        size.fetched(0.1, is_full=False)
        size.ran(seconds)
    push(redis_client, "h1", "h2", queue="high")
    fetch(fetcher, 1)
    fetcher._buffer.jobs.popleft()
    fetch(fetcher, 1)
    # From here on, no job starts.
    fetcher._tick()
    for unit in fetcher._buffer.jobs:
        unit.fetched_at -= 0.1

    fetcher._tick()

    assert [unit.raw for unit in fetcher._buffer.jobs] == left
    assert redis_client.llen("queue:high") == 1 - len(left)
