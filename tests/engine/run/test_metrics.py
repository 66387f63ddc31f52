"""Execution metrics: counted by threads without a lock, written as each release's Metrics page reads them."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import redis

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.errors import RedisConnectionError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.processes.metrics import ClassCounts, add_counts
from sidekiq_py.wire.dialect import Dialect
from tests.support.redis_server import RedisServer
from tests.support.time_to_live import was_given

V7 = Dialect.pinned("7.3.2")
V8 = Dialect.pinned("8.1.7")
AT = datetime(2025, 2, 4, 8, 3, 20, tzinfo=UTC).timestamp()
JOB = {"class": "HardJob", "args": []}


def test_sidekiq_7_finds_counts_and_histogram_under_its_names(pool: Pool, redis_client: redis.Redis) -> None:
    """All attempts, the failures, the time of the successes; a bucket for each time."""
    began, metrics = time.monotonic(), ExecutionMetrics()
    metrics.record(JOB, 0.0199, True)
    metrics.record(JOB, 0.020, True)
    metrics.record(JOB, 5.0, False)

    metrics.flush(pool, now=AT, dialect=V7)

    assert redis_client.hgetall("j|20250204|8:3") == {b"HardJob|ms": b"40", b"HardJob|f": b"1", b"HardJob|p": b"3"}
    assert buckets(redis_client, "HardJob-04-08:3") == {0: 1, 1: 1}
    assert set(redis_client.keys()) == {b"j|20250204|8:3", b"HardJob-04-08:3"}
    for key in ("j|20250204|8:3", "HardJob-04-08:3"):
        assert was_given(redis_client, key, 8 * 3600, since=began)


def test_sidekiq_8_has_names_of_its_own_and_ten_minutes_more(pool: Pool, redis_client: redis.Redis) -> None:
    """The hash of ten minutes stays for three days."""
    began, metrics = time.monotonic(), ExecutionMetrics()
    metrics.record(JOB, 1000.0, True)

    metrics.flush(pool, now=AT, dialect=V8)

    counts = {b"HardJob|ms": b"1000000", b"HardJob|p": b"1"}
    assert redis_client.hgetall("j|250204|8:03") == redis_client.hgetall("j|250204|8:0") == counts
    assert buckets(redis_client, "h|HardJob-4-8:3") == {25: 1}
    assert was_given(redis_client, "j|250204|8:0", 3 * 24 * 3600, since=began)
    assert was_given(redis_client, "j|250204|8:03", 8 * 3600, since=began)
    assert len(redis_client.keys()) == 3


def test_a_release_without_metrics_gets_none(pool: Pool, redis_client: redis.Redis) -> None:
    """Nor does what was counted come in a lump once a newer release is detected."""
    metrics = ExecutionMetrics()
    metrics.record(JOB, 0.01, True)

    metrics.flush(pool, now=AT, dialect=Dialect.pinned("6.4.1"))
    metrics.flush(pool, now=AT, dialect=V7)

    assert redis_client.keys() == []


def test_a_class_has_one_row_however_many_queues_its_jobs_come_from() -> None:
    """With ten classes, 2,000 queues and ten threads, adding up a row for each took 3 s, with every heartbeat."""
    metrics = ExecutionMetrics()
    count = metrics.success_counter()

    for number in range(50):
        count(JOB, f"queue-{number}", 0.01, monotonic())

    assert metrics.attempts() == {"HardJob": 50}
    assert sum(len(rows) for table in metrics._tables for rows in table.values()) == 1


def test_each_flush_writes_what_is_new(pool: Pool, redis_client: redis.Redis) -> None:
    """Flushes in one minute add up; without jobs nothing is written."""
    metrics = ExecutionMetrics()
    for _ in range(3):
        metrics.record(JOB, 0.001, True)
        metrics.flush(pool, now=AT, dialect=V7)
    redis_client.config_resetstat()

    metrics.flush(pool, now=AT + 60, dialect=V7)

    assert "cmdstat_hincrby" not in redis_client.info("commandstats")
    assert redis_client.hget("j|20250204|8:3", "HardJob|p") == b"3"
    assert buckets(redis_client, "HardJob-04-08:3") == {0: 3}


def test_a_class_that_is_an_integer_python_does_not_print_counts_in_full(pool: Pool, redis_client: redis.Redis) -> None:
    """More than 4,300 digits must not raise after the job's end."""
    metrics = ExecutionMetrics()
    metrics.record({"class": "Wrapper", "wrapped": 10**5000}, 0.001, False)

    metrics.flush(pool, now=AT, dialect=V7)

    digits = b"1" + b"0" * 5000
    assert redis_client.hgetall("j|20250204|8:3") == {digits + b"|f": b"1", digits + b"|p": b"1"}


def test_an_active_job_counts_under_its_own_class(pool: Pool, redis_client: redis.Redis) -> None:
    """And a foreign payload's odd `wrapped` costs nobody a job."""
    metrics = ExecutionMetrics()
    metrics.record({"class": "Wrapper", "wrapped": "MailJob"}, 0.001, False)
    metrics.record({"class": "Wrapper", "wrapped": ["odd"]}, 0.001, False)
    metrics.record({"class": "Wrapper", "wrapped": ["odd"]}, 0.001, False)

    metrics.flush(pool, now=AT, dialect=V7)

    assert redis_client.hgetall("j|20250204|8:3") == {
        b"MailJob|f": b"1",
        b"MailJob|p": b"1",
        b"['odd']|f": b"2",
        b"['odd']|p": b"2",
    }


def test_nothing_is_miscounted_while_threads_count_and_another_flushes(pool: Pool, redis_client: redis.Redis) -> None:
    """Every attempt of every thread is written once."""
    metrics = ExecutionMetrics()
    threads = [threading.Thread(target=count, args=(metrics, 20_000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.flush(pool, now=AT, dialect=V7)
    metrics.flush(pool, now=AT, dialect=V7)

    total = redis_client.hgetall("j|20250204|8:3")
    assert {name: int(value) for name, value in total.items()} == {
        b"HardJob|p": 80_000,
        b"HardJob|f": 40_000,
        b"HardJob|ms": 80_000,
    }


def test_the_time_of_a_run_that_is_not_counted_yet_is_written(pool: Pool, redis_client: redis.Redis) -> None:
    """A flush may read a run between its time and its count, beside a failure."""
    add_counts(pool, {"HardJob": ClassCounts(1, 2, (0,) * 26)}, now=AT, generation=7)

    assert redis_client.hgetall("j|20250204|8:3") == {b"HardJob|ms": b"2", b"HardJob|f": b"1", b"HardJob|p": b"1"}


def test_threads_that_come_and_go_leave_no_tables_behind(pool: Pool, redis_client: redis.Redis) -> None:
    """As in a worker that is resized with its load for months: a new thread goes on counting where one has ended."""
    metrics = ExecutionMetrics()

    for _ in range(20):
        threads = [threading.Thread(target=count, args=(metrics, 4)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    metrics.flush(pool, now=AT, dialect=V7)

    assert len(metrics._tables) <= 2
    assert redis_client.hget("j|20250204|8:3", "HardJob|p") == b"160"


def test_a_run_that_a_flush_reads_halfway_keeps_its_time(pool: Pool, redis_client: redis.Redis) -> None:
    """Its time is added before it is counted: a flush in between writes neither, and notes neither as written."""
    metrics = ExecutionMetrics()

    class Seconds(float):
        def __le__(self, other: float) -> bool:
            metrics.flush(pool, now=AT, dialect=V7)
            return super().__le__(other)

    count_success = metrics.success_counter()
    count_success(JOB, "default", Seconds(0.5), monotonic() - Seconds(0.5))
    metrics.flush(pool, now=AT, dialect=V7)

    assert redis_client.hgetall("j|20250204|8:3") == {b"HardJob|ms": b"500", b"HardJob|p": b"1"}


def test_successes_of_a_thread_add_up_with_all_else(pool: Pool, redis_client: redis.Redis) -> None:
    """Counted on a shorter way of their own, whichever queue they came from."""
    metrics = ExecutionMetrics()
    count_success = metrics.success_counter()
    count_success(JOB, "default", 0.0199, monotonic() - 0.0199)
    count_success(JOB, "low", 0.020, monotonic() - 0.020)
    count_success({"class": "Wrapper", "wrapped": ["odd"]}, "default", 0.001, monotonic() - 0.001)
    count_success({"class": "Wrapper", "wrapped": ["odd"]}, "default", 0.001, monotonic() - 0.001)
    metrics.record(JOB, 5.0, False)

    metrics.flush(pool, now=AT, dialect=V7)

    assert redis_client.hgetall("j|20250204|8:3") == {
        b"HardJob|ms": b"40",
        b"HardJob|f": b"1",
        b"HardJob|p": b"3",
        b"['odd']|ms": b"2",
        b"['odd']|p": b"2",
    }
    assert buckets(redis_client, "HardJob-04-08:3") == {0: 1, 1: 1}


def test_counts_survive_a_redis_that_is_away(new_redis_server: Callable[..., RedisServer]) -> None:
    """What could not be sent comes with the next flush."""
    server = new_redis_server()
    links = Pool(RedisSettings(server.url))
    metrics = ExecutionMetrics()
    metrics.record(JOB, 0.001, True)
    server.stop()
    with pytest.raises(RedisConnectionError):
        metrics.flush(links, now=AT, dialect=V7)

    server.start()
    metrics.record(JOB, 0.001, True)
    metrics.flush(links, now=AT, dialect=V7)

    client = server.client()
    assert client.hget("j|20250204|8:3", "HardJob|p") == b"2"
    client.close()
    links.close()


def count(metrics: ExecutionMetrics, attempts: int) -> None:
    """Half of them succeed, in 2 ms each."""
    for number in range(attempts):
        metrics.record(JOB, 0.002, number % 2 == 0)


def buckets(client: redis.Redis, key: str) -> dict[int, int]:
    """The counts of a histogram that are not 0, read as Ruby reads them."""
    fields = [part for bucket in range(26) for part in ("GET", "u16", f"#{bucket}")]
    counts = client.execute_command("BITFIELD_RO", key, *fields)
    return {bucket: found for bucket, found in enumerate(counts) if found}
