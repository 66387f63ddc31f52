"""Who is alive and who is dead: frozen processes, a Redis that was away, Ruby's own clean-up."""

import hashlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.support.ruby import release, run_ruby, why_missing
from tests.kill.conftest import Fleet, KillWorker
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

CONCURRENCY = 5
# As of a lease of two seconds, for processes that have a longer one: on a busy machine the living may be late as well.
BEAT_SECONDS = 1 / 3


def test_a_worker_that_was_frozen_past_its_lease_drops_what_it_had_not_started(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """
    Another one has run its jobs meanwhile. What it was running it may end; nothing of that is written.

    A thread that was about to call a job may call it: no process can look at its lease and run the next line at once.
    So the freeze must find more jobs that had not started than there are threads.
    """
    jobs = 6000
    texts = [job_text(number, "boom" if number % 10 == 3 else "tick", [0.0003]) for number in range(jobs)]
    push_jobs(fleet.client, texts)
    fleet.keep_retries()
    frozen = fleet.start(lease_seconds=4, beat_seconds=BEAT_SECONDS, concurrency=CONCURRENCY)
    eventually(lambda: fleet.ledger.count(STARTED) > 300)
    not_started = _freeze_with_jobs_at_hand(fleet, frozen)
    held = fleet.in_flight_of(frozen.pid)
    fleet.start(beat_seconds=BEAT_SECONDS, concurrency=CONCURRENCY)

    eventually(lambda: not fleet.in_flight_of(frozen.pid))
    fleet.wait_until_done()
    starts_before = fleet.ledger.numbers(STARTED)
    thawed_at = time.monotonic()
    frozen.thaw()
    push_jobs(fleet.client, [job_text(jobs + number, args=[0.003]) for number in range(500)])
    eventually(lambda: fleet.ledger.count(STARTED) >= jobs + 500)
    fleet.wait_until_done()
    eventually(lambda: "considered dead" in frozen.log)

    books = fleet.books(jobs + 500)
    stale = [run for run in fleet.ledger.runs() if run.start > thawed_at and run.number in starts_before]
    again = [runs for runs in fleet.ledger.runs_by_number().values() if len(runs) > 1]
    report(f"{books}; had not started when frozen={len(not_started)} of {held}, started after the thaw={len(stale)}")
    assert books.lost == books.doubled == ()
    # One for each thread that was about to call it, and it was the frozen process that did.
    assert {(run.pid, run.number in not_started) for run in stale} <= {(frozen.pid, True)}
    assert len({run.thread for run in stale}) == len(stale) <= CONCURRENCY
    assert len(again) <= held
    assert fleet.client.zcard("retry") == jobs // 10
    assert int(fleet.client.get("stat:failed") or 0) == jobs // 10
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs + 500)


def _freeze_with_jobs_at_hand(fleet: Fleet, worker: KillWorker) -> set[int]:
    """
    Freeze *worker* while more jobs wait in it than it has threads; the numbers of those that had not started.

    A job that was frozen counts as a long one, and while jobs are long nothing is fetched ahead: so many short ones run
    in between that it is forgotten.
    """
    for _ in range(50):
        worker.freeze()
        eventually(lambda: _is_frozen(worker.pid), every_seconds=0.001)
        started = fleet.ledger.numbers(STARTED).keys()
        waiting = fleet.numbers_in_flight_of(worker.pid) - started
        if len(waiting) > 2 * CONCURRENCY:
            return waiting
        worker.thaw()
        enough = len(started) + 100
        eventually(lambda: fleet.ledger.count(STARTED) >= enough, every_seconds=0.001)  # noqa: B023 — asked at once
    raise AssertionError("no freeze found jobs that had been fetched ahead")


def _is_frozen(pid: int) -> bool:
    """All its threads stand."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_a_thawed_worker_goes_on_under_its_next_epoch(fleet: Fleet, report: Callable[[object], None]) -> None:
    """It fetches again, and its old name is gone."""
    worker = fleet.start(lease_seconds=4, beat_seconds=BEAT_SECONDS, concurrency=2)
    push_jobs(fleet.client, [job_text(number, "stubborn", [1]) for number in range(2)])
    eventually(lambda: fleet.ledger.count(STARTED) == 2)
    [before] = fleet.owners_of(worker.pid)
    worker.freeze()
    other = fleet.start(beat_seconds=BEAT_SECONDS, concurrency=2)
    eventually(lambda: not fleet.client.hexists("sidekiq_py:owners", before))
    fleet.wait_until_done()
    other.stop()

    worker.thaw()
    push_jobs(fleet.client, [job_text(2), job_text(3)])

    fleet.wait_until_done()
    books = fleet.books(4)
    [now] = [name.decode() for name in fleet.client.hkeys("sidekiq_py:owners")]
    report(f"{books}; {before.rpartition(':')[2]} -> {now.rpartition(':')[2]}")
    assert now.rpartition(":")[0] == before.rpartition(":")[0]
    assert int(now.rpartition(":")[2]) == int(before.rpartition(":")[2]) + 1
    assert (books.lost, books.doubled) == ((), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == 4)


@pytest.mark.parametrize("outage", ["stopped", "frozen"])
def test_no_job_is_taken_from_the_living_after_redis_was_away_past_the_lease(
    durable_fleet: Fleet, durable_server: RedisServer, report: Callable[[object], None], outage: str
) -> None:
    """Every lease has run out, and every worker lives."""
    fleet = durable_fleet
    workers = [fleet.start(lease_seconds=4, concurrency=2) for _ in range(3)]
    push_jobs(fleet.client, [job_text(number, args=[9]) for number in range(6)])
    push_jobs(fleet.client, [job_text(number, args=[0.01]) for number in range(6, 100)])
    eventually(lambda: fleet.ledger.count(STARTED) >= 6)

    if outage == "stopped":
        durable_server.stop()
        time.sleep(6)
        durable_server.start()
    else:
        with durable_server.paused():
            time.sleep(6)
    missing = sum(
        not fleet.client.exists(f"sidekiq_py:lease:{owner.decode()}")
        for owner in fleet.client.hkeys("sidekiq_py:owners")
    )

    fleet.wait_until_done(60)
    books = fleet.books(100)
    taken = sum(worker.log.count("is dead") for worker in workers)
    report(f"{books}; leases missing at first sight={missing} of {len(workers)}, owners taken for dead={taken}")
    assert all(worker.is_running for worker in workers)
    assert taken == 0
    assert (books.once, books.again, books.lost, books.doubled) == (100, 0, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == 100)


def test_a_killed_worker_is_found_from_its_machine_though_the_lookout_lives_on_another_one(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """From there nobody sees more than its lease run out."""
    fleet.client.set("sidekiq_py:lookout", "on another machine")
    lease_seconds = 120
    fleet.start(lease_seconds=lease_seconds, beat_seconds=2, concurrency=1)
    younger = fleet.start(lease_seconds=lease_seconds, beat_seconds=2, concurrency=1)
    push_jobs(fleet.client, [job_text(number, "stubborn", [30]) for number in range(2)])
    eventually(lambda: fleet.ledger.count(STARTED) == 2 and _was_announced(fleet, younger))
    fleet.kill(younger)
    killed_at = time.monotonic()

    eventually(lambda: not fleet.in_flight_of(younger.pid), lease_seconds / 2)

    report(f"brought back after {time.monotonic() - killed_at:.1f} s")


def _was_announced(fleet: Fleet, worker: KillWorker) -> bool:
    """The others of this machine can know of it."""
    [newest] = fleet.client.mget(fleet.client.keys("sidekiq_py:newest:*")) or [b""]
    return worker.identity.encode() in (newest or b"")


def test_what_a_machine_had_that_is_gone_with_the_lookout_comes_back(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """Its lease as the lookout runs out before those of its owners, so nothing comes back later for it."""
    here = fleet.start(lease_seconds=6, concurrency=1)
    owner = {"boot": "gone", "pidns": "n", "pid": 7, "start": 8, "queues": ["default"]}
    died_at = time.monotonic()
    pipe = fleet.client.pipeline()
    pipe.hset("sidekiq_py:owners", "gone:7:abc:1", json.dumps(owner))
    pipe.set("sidekiq_py:lease:gone:7:abc:1", "1", px=6000)
    pipe.set("sidekiq_py:lookout", "gone:7:abc", px=3000)
    pipe.hset("sidekiq_py:inflight:gone:7:abc:1", "1.0:default", job_text(0))
    pipe.execute()

    eventually(lambda: fleet.ledger.count(STARTED) == 1)

    seconds = time.monotonic() - died_at
    report(f"brought back after {seconds:.1f} s")
    assert fleet.client.get("sidekiq_py:lookout") == here.identity.encode()
    # The lease and two beats.
    assert seconds > 8


def test_ruby_s_clean_up_of_processes_costs_no_job(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Ruby's Web UI strikes a dead Python process off its list before anybody has looked after its jobs."""
    ruby_release = release("6.4")
    missing = why_missing(ruby_release)
    if missing is not None:
        skip_or_fail(missing, switch="SIDEKIQ_PY_REQUIRE_RUBY")
    push_jobs(fleet.client, [job_text(number, args=[2]) for number in range(20)])
    worker = fleet.start(concurrency=10)
    eventually(lambda: fleet.ledger.count(STARTED) == 10)
    identity = worker.identity
    fleet.kill(worker)
    # A minute after its last beat.
    fleet.client.delete(identity)

    left = run_ruby(ruby_release, "Sidekiq::ProcessSet.new.map { |process| process['identity'] }", fleet.redis_url)
    members = fleet.client.smembers("processes")
    fleet.start(concurrency=10)
    fleet.wait_until_done()

    books = fleet.books(20)
    report(f"{books}; in_flight_at_deaths={fleet.in_flight_at_deaths}")
    assert left == []
    assert identity.encode() not in members
    assert (books.lost, books.doubled) == ((), ())
    assert books.again == fleet.in_flight_at_deaths == 10


def test_a_death_handler_that_hangs_does_not_cost_its_process_the_lease(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """It is called while others look whether this process lives."""
    dead = fleet.start(concurrency=1)
    push_jobs(fleet.client, [job_text(0, "stubborn", [60])])
    eventually(lambda: fleet.ledger.count(STARTED) == 1)
    [owner] = fleet.owners_of(dead.pid)
    [raw] = jobs_in_flight(fleet.client, owner)
    # As if it had been marked, and had killed two processes before.
    fleet.client.delete(f"sidekiq_py:inflight:{owner}", f"sidekiq_py:inbox:{owner}:default")
    fleet.client.hset(f"sidekiq_py:inflight:{owner}", "1.0!default", raw)
    fleet.client.hset("sidekiq_py:suspects", _digest(raw), f"2:{time.time():.3f}")
    fleet.kill(dead)

    worker = fleet.start(lease_seconds=2, death_handler_seconds=5)
    eventually(lambda: fleet.ledger.count("D") == 1)
    other = fleet.start(lease_seconds=2)
    push_jobs(fleet.client, [job_text(number, args=[0.05]) for number in range(1, 100)])
    fleet.wait_until_done()
    time.sleep(3)

    books = fleet.books(100)
    report(books)
    assert "is dead" not in other.log
    assert "considered dead" not in worker.log
    assert fleet.client.zcard("dead") == 1
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def _digest(raw: bytes) -> str:
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
