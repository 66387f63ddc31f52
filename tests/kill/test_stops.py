"""Quiet and stop: a job runs in one process at a time, and goes back at once where it is not run."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from tests.kill.conftest import Fleet
from tests.support.ledger import CUT_OFF, ENDED, STARTED, job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess


def test_jobs_that_ignore_shutdown_run_once_more_and_never_twice_at_a_time(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """An idle worker takes them in the instant in which they are put back; by then their threads are gone."""
    first = fleet.start(shutdown_timeout_seconds=0.3)
    push_jobs(fleet.client, [job_text(number, "stubborn", [9]) for number in range(5)])
    eventually(lambda: fleet.ledger.count(STARTED) == 5)
    second = fleet.start()

    first.send_signal(signal.SIGTERM)

    assert first.wait(60) == 0
    eventually(lambda: fleet.ledger.count(STARTED) == 10)
    fleet.wait_until_done()
    second.stop()
    books = fleet.books(5)
    gaps = [(again.start - once.seen) * 1000 for once, again in fleet.ledger.runs_by_number().values()]
    report(f"{books}; started again {min(gaps):.1f} to {max(gaps):.1f} ms after the last sign of life")
    assert fleet.ledger.overlaps() == []
    assert (books.again, books.lost, books.doubled) == (5, (), ())
    assert fleet.client.zcard("retry") == 0
    eventually(lambda: fleet.client.get("stat:processed") == b"5")


def test_jobs_that_heed_shutdown_go_back_and_run_elsewhere(
    fleet: Fleet, report: Callable[[object], None], tmp_path: Path
) -> None:
    """Each as soon as it has ended, with nothing counted and no retry written."""
    may_end = tmp_path / "may end"
    first = fleet.start(shutdown_timeout_seconds=0.3)
    push_jobs(fleet.client, [job_text(number, "heedful", [str(may_end)]) for number in range(8)])
    eventually(lambda: fleet.ledger.count(STARTED) == 5)
    second = fleet.start(concurrency=10)
    eventually(lambda: fleet.ledger.count(STARTED) == 8)

    first.send_signal(signal.SIGTERM)

    assert first.wait(60) == 0
    may_end.touch()
    fleet.wait_until_done()
    second.stop()
    books = fleet.books(8)
    report(f"{books}; cut_off={fleet.ledger.count(CUT_OFF)}")
    assert fleet.ledger.overlaps() == []
    assert (fleet.ledger.count(CUT_OFF), books.again, books.lost, books.doubled) == (5, 5, (), ())
    assert fleet.client.zcard("retry") == 0
    eventually(lambda: fleet.client.get("stat:processed") == b"8")


def test_quiet_gives_the_buffer_back_at_once(fleet: Fleet, report: Callable[[object], None], tmp_path: Path) -> None:
    """Jobs that were fetched ahead behind long ones; those that run go on."""
    may_end = tmp_path / "may end"
    worker = fleet.start(concurrency=3, buffer_seconds=60)
    # Short jobs first, so that the worker fetches ahead; then it is busy with long ones.
    jobs = [job_text(number) for number in range(2000)]
    jobs += [job_text(2000 + number, args=[str(may_end)]) for number in range(3)]
    jobs += [job_text(2003 + number) for number in range(100)]
    push_jobs(fleet.client, jobs)
    eventually(lambda: fleet.ledger.count(STARTED) >= 2003)

    worker.send_signal(signal.SIGTSTP)
    asked_at = time.monotonic()

    eventually(lambda: fleet.in_flight_of(worker.pid) <= 3)
    took = time.monotonic() - asked_at
    fleet.start()
    eventually(lambda: fleet.ledger.count(STARTED) == 2103)
    may_end.touch()
    fleet.wait_until_done()
    books = fleet.books(2103)
    report(f"{books}; the buffer was back after {took * 1000:.0f} ms")
    assert (books.once, books.lost, books.doubled) == (2103, (), ())


def test_a_worker_that_stops_in_order_leaves_nothing_behind(fleet: Fleet, report: Callable[[object], None]) -> None:
    """In the middle of many jobs: none runs twice, none is in flight, and no owner stands in the books."""
    push_jobs(fleet.client, [job_text(number, args=[0.001]) for number in range(5000)])
    for _ in range(3):
        worker = fleet.start(wait=False)
        before = fleet.ledger.count(STARTED)
        eventually(lambda before=before: fleet.ledger.count(STARTED) > before + 200)
        assert worker.stop() == 0
        assert fleet.in_flight == 0
        assert fleet.client.hlen("sidekiq_py:owners") == 0

    books = fleet.books(5000)
    report(books)
    assert (books.again, books.lost, books.doubled) == (0, (), ())
    assert books.waiting == fleet.client.llen("queue:default") == 5000 - books.once
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == books.once)


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
def test_a_job_that_ends_in_a_stop_while_redis_refuses_writes_runs_once(
    fleet: Fleet, report: Callable[[object], None], tmp_path: Path, is_async: bool
) -> None:
    """As in a deploy during a failover. The stop has time, so it waits until Redis accepts the acknowledgement."""
    may_end = tmp_path / "may end"
    worker = fleet.start(concurrency=1, shutdown_timeout_seconds=60, has_async_jobs=True)
    push_jobs(fleet.client, [job_text(0, "atick" if is_async else "tick", [str(may_end)])])
    eventually(lambda: fleet.ledger.count(STARTED) == 1)
    fleet.client.config_set("min-replicas-to-write", 1)
    try:
        worker.send_signal(signal.SIGTERM)
        may_end.touch()
        eventually(lambda: fleet.ledger.count(ENDED) == 1)
        with pytest.raises(AssertionError, match="still runs"):
            worker.wait(1)
    finally:
        fleet.client.config_set("min-replicas-to-write", 0)

    assert worker.wait(30) == 0

    books = fleet.books(1)
    report(books)
    assert (books.once, books.again, books.lost, books.doubled) == (1, 0, (), ())
    assert fleet.in_flight + fleet.waiting == 0


MEMBER = """
import os, time
import sidekiq_py as sidekiq

@sidekiq.job(name="Member")
def run(may_end):
    print("begins", flush=True)
    while not os.path.exists(may_end):
        time.sleep(0.01)
    print("ends", flush=True)
"""


def test_an_end_that_was_refused_before_the_stop_is_written_before_the_process_ends(
    start_worker: Callable[..., WorkerProcess], redis_client: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """
    The end of a batch's member is tried again once a second. The stop must not come between two tries: the job would
    run again although Redis accepts writes.
    """
    (tmp_path / "member_jobs.py").write_text(MEMBER)
    worker = start_worker("member_jobs", arguments=["-c", "1", "-t", "60"])
    may_end = tmp_path / "may end"
    job = {"class": "Member", "args": [str(may_end)], "sidekiq_py_batch": ["gone", 0]}
    Client(redis_url, sidekiq_version="7").push(job)
    eventually(lambda: "begins" in worker.log)
    redis_client.config_set("min-replicas-to-write", 1)
    may_end.touch()
    try:
        eventually(lambda: "finished jobs stay in flight until Redis accepts writes again" in worker.log)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) == 0
    assert worker.log.count("begins") == worker.log.count("ends\n") == 1
    assert not redis_client.llen("queue:default")


def test_a_worker_stops_though_redis_is_gone(
    durable_fleet: Fleet, durable_server: RedisServer, tmp_path: Path, report: Callable[[object], None]
) -> None:
    """What it could not hand in runs again when Redis is back: it was in flight all the time."""
    fleet = durable_fleet
    worker = fleet.start(shutdown_timeout_seconds=1, socket_timeout_seconds=1)
    may_end = tmp_path / "may end"
    texts = [job_text(0, "boom", [str(may_end)]), job_text(1, args=[str(may_end)])]
    texts += [job_text(n, "stubborn", [20]) for n in range(2, 5)]
    push_jobs(fleet.client, [*texts, *[job_text(n) for n in range(5, 50)]])
    eventually(lambda: fleet.ledger.count(STARTED) == 5)
    durable_server.stop()
    may_end.touch()
    asked_at = time.monotonic()
    worker.send_signal(signal.SIGTERM)

    code = worker.wait(25)
    took = time.monotonic() - asked_at
    durable_server.start()

    books = fleet.books(50)
    report(f"{books}; it had ended after {took:.1f} s")
    assert code == 0
    # A second of grace, three for jobs that do not end, and a second of silence; 4.7 on an idle machine.
    assert took < 20
    assert (books.lost, books.doubled) == ((), ())
    assert fleet.in_flight + fleet.waiting == 50
    fleet.start()
    eventually(lambda: fleet.ledger.count(STARTED) == 55)
