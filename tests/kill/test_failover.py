"""A failover, by sentinels or by hand: jobs and workers go to the new primary."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.kill.conftest import Fleet
from tests.support.ledger import STARTED, Ledger, job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually


def test_a_worker_follows_a_failover(
    primary: RedisServer,
    replica: RedisServer,
    sentinel: Sentinel,
    tmp_path: Path,
    report: Callable[[object], None],
) -> None:
    """Ordered while the worker is idle, so that Redis itself loses nothing; its owner and lease have gone over, too."""
    with ExitStack() as exits:
        # Whoever becomes the primary closes all connections.
        patience = Retry(ConstantBackoff(0.05), 100)
        before = primary.client()
        after = replica.client(retry=patience, retry_on_error=[redis.ConnectionError])
        exits.callback(before.close)
        exits.callback(after.close)
        fleet = Fleet(primary.url, before, Ledger(tmp_path / "ledger"), exits)
        fleet.worker_url = sentinel.url
        worker = fleet.start()
        push_jobs(before, [job_text(number) for number in range(100)])
        fleet.wait_until_done(10)

        sentinel.fail_over()
        eventually(lambda: after.info("replication")["role"] == "master")
        failed_over_at = time.monotonic()
        push_jobs(after, [job_text(number) for number in range(100, 200)])

        eventually(lambda: fleet.ledger.count(STARTED) == 200)
        took = time.monotonic() - failed_over_at
        fleet.client = after
        fleet.wait_until_done(10)
        books = fleet.books(200)
        report(f"{books}; all had run {took:.1f} s after the failover")
        assert worker.is_running
        assert (books.once, books.lost, books.doubled) == (200, (), ())


def test_jobs_move_to_another_server_by_replication(
    primary: RedisServer, replica: RedisServer, tmp_path: Path, report: Callable[[object], None]
) -> None:
    """As in docs/operating.md, here with a worker that was killed: the jobs that it had in flight come along."""
    with ExitStack() as exits:
        before, after = primary.client(), replica.client()
        exits.callback(before.close)
        exits.callback(after.close)
        fleet = Fleet(primary.url, before, Ledger(tmp_path / "ledger"), exits)
        worker = fleet.start()
        push_jobs(before, [job_text(number, args=[0.02]) for number in range(200)])
        eventually(lambda: fleet.ledger.count(STARTED) > 20)
        in_flight = fleet.kill(worker)
        assert in_flight
        before.wait(1, 5000)

        after.replicaof("NO", "ONE")
        primary.stop()
        fleet.client, fleet.redis_url = after, replica.url
        fleet.start()

        fleet.wait_until_done()
        books = fleet.books(200)
        report(books)
        assert (books.waiting, books.lost, books.doubled) == (0, (), ())
        assert books.again <= in_flight
