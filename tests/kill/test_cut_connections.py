"""Connections are cut before, within and after each script, and at random: each job still runs once."""

import random
import time
from collections.abc import Callable

import pytest

from sidekiq_py.engine.ownership.host import ProcessPlace, registration
from tests.kill.conftest import Fleet
from tests.support.cutting_proxy import WHERES, CuttingProxy
from tests.support.kill_worker import REQUESTS
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.waiting import eventually

SLICE = 60
HERE = ProcessPlace.here()
NOBODY = registration(ProcessPlace(HERE.boot, HERE.pid_namespace, 2**22 + 5, 1), ["default"])


def push_in_a_row(fleet: Fleet, first: int) -> None:
    """Enough to be fetched in batches, and to be handed in with the next fetch or by itself."""
    push_jobs(fleet.client, [job_text(first + n, args=[0]) for n in range(SLICE)])


def push_slow(fleet: Fleet, first: int) -> None:
    """Too slow to be fetched ahead: each is taken by itself."""
    push_jobs(fleet.client, [job_text(first + n, args=[0.006]) for n in range(SLICE)])


def push_failing(fleet: Fleet, first: int) -> None:
    """Each is settled by itself, and goes to `dead`."""
    push_jobs(fleet.client, [job_text(first + n, "boom", retry=0) for n in range(SLICE)])


def push_one_by_one(fleet: Fleet, first: int) -> None:
    """Each finds the worker waiting."""
    for number in range(first, first + SLICE):
        push_jobs(fleet.client, [job_text(number)])
        time.sleep(0.003)


def schedule_due(fleet: Fleet, first: int) -> None:
    """For the poller."""
    fleet.client.zadd("schedule", {job_text(first + n): time.time() - 1 for n in range(SLICE)})


def push_late(fleet: Fleet, first: int) -> None:
    """Every other one arrives in a queue that is still waited on when all threads are busy: it goes back."""
    for number in range(first, first + SLICE, 2):
        push_jobs(fleet.client, [job_text(number, args=[0.06])])
        eventually(lambda number=number: fleet.ledger.count(STARTED) > number)
        push_jobs(fleet.client, [job_text(number + 1)], "low")
        eventually(lambda number=number: fleet.ledger.count(STARTED) > number + 1)


def leave_to_be_recovered(fleet: Fleet, first: int) -> None:
    """As a process leaves them that was killed."""
    owner = f"here:1:{first}:1"
    fields = {f"1.{n}:default": job_text(first + n) for n in range(SLICE - 1)}
    fleet.client.hset(f"sidekiq_py:inflight:{owner}", mapping=fields)
    fleet.client.lpush(f"sidekiq_py:inbox:{owner}:default", job_text(first + SLICE - 1))
    fleet.client.hset("sidekiq_py:owners", owner, NOBODY)


@pytest.mark.parametrize(
    ("asked", "push"),
    [
        ("fetch", push_in_a_row),
        ("acknowledge", push_in_a_row),
        ("settle", push_failing),
        ("take_in_order", push_slow),
        ("acknowledge_listed", push_slow),
        ("wait", push_one_by_one),
        ("give_back", push_late),
        ("promote", schedule_due),
        ("fence", leave_to_be_recovered),
        ("recover", leave_to_be_recovered),
    ],
)
def test_a_cut_connection_costs_no_job_and_doubles_none(
    fleet: Fleet,
    proxy: CuttingProxy,
    report: Callable[[object], None],
    asked: str,
    push: Callable[[Fleet, int], None],
) -> None:
    """In the request, before the reply, in the reply; the process lives on, and its in-flight hash becomes empty."""
    fleet.worker_url = proxy.url
    fleet.start(lease_seconds=3, concurrency=1, queues=[("default", 0), ("low", 0)])
    pushed = 0
    for where in WHERES:
        proxy.cut(REQUESTS[asked], where, times=2)
        # On a busy machine jobs take longer, and those of a whole slice may be taken one by one.
        while not proxy.cuts[where]:
            push(fleet, pushed)
            pushed += SLICE
            eventually(lambda pushed=pushed: len(fleet.ledger.numbers(STARTED)) == pushed)
        fleet.wait_until_done(10)
        proxy.be_kind()

    books = fleet.books(pushed)
    report(f"{books}; cuts={dict(proxy.cuts)}")
    assert (books.once, books.lost, books.doubled) == (pushed, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == pushed)


def test_a_move_whose_look_is_cut_off_loses_nothing(
    fleet: Fleet, proxy: CuttingProxy, report: Callable[[object], None]
) -> None:
    """Redis has read the blocking move and not the look behind it: the job lies in the inbox of a living process."""
    fleet.worker_url = proxy.url
    worker = fleet.start(lease_seconds=6)
    for number in range(5):
        proxy.cut(b"\r\nEXISTS\r\n", "in request")
        push_jobs(fleet.client, [job_text(number)])
        eventually(lambda number=number: fleet.ledger.count(STARTED) > number)
    fleet.wait_until_done(10)

    books = fleet.books(5)
    report(f"{books}; cuts={dict(proxy.cuts)}")
    assert worker.is_running
    assert (books.once, books.lost, books.doubled) == (5, (), ())


@pytest.mark.parametrize("jobs", [2000, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_nothing_is_lost_where_connections_break_at_random(
    fleet: Fleet, proxy: CuttingProxy, report: Callable[[object], None], jobs: int
) -> None:
    """One request in eight, with three workers at it; no job runs twice, as no process dies."""
    draw = random.Random(4711)
    fleet.worker_url = proxy.url
    for _ in range(3):
        fleet.start()
    proxy.cut_at_random(draw, one_in=8)
    push_jobs(
        fleet.client,
        [
            job_text(n, "boom", retry=0) if n % 10 == 3 else job_text(n, args=[draw.choice([0, 0.002])])
            for n in range(jobs)
        ],
    )

    fleet.wait_until_done(60)
    proxy.be_kind()

    books = fleet.books(jobs)
    report(f"{books}; cuts={dict(proxy.cuts)}")
    assert sum(proxy.cuts.values()) > 50
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    # A count whose reply was lost is taken for written, as one that is written twice would be worse.
    assert int(fleet.client.get("stat:processed") or 0) <= jobs
    assert int(fleet.client.get("stat:failed") or 0) == fleet.client.zcard("dead") == jobs // 10


def test_a_network_that_is_gone_without_a_word_is_noticed(
    fleet: Fleet, proxy: CuttingProxy, report: Callable[[object], None]
) -> None:
    """An idle worker waits on connections that will never say anything again."""
    fleet.worker_url = proxy.url
    fleet.start(socket_timeout_seconds=1, lease_seconds=6)
    push_jobs(fleet.client, [job_text(0)])
    fleet.wait_until_done(10)

    proxy.swallow(True)
    push_jobs(fleet.client, [job_text(1)])
    time.sleep(0.5)
    proxy.swallow(False)
    began = time.monotonic()

    eventually(lambda: fleet.ledger.count(STARTED) == 2)
    fleet.wait_until_done()
    books = fleet.books(2)
    report(f"{books}; noticed after {time.monotonic() - began:.1f} s")
    assert (books.once, books.lost, books.doubled) == (2, (), ())
