"""A worker is killed at each named step of a job's way; another one finds everything."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet, KillWorker
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually

JOBS = 300
MOMENTS = ("before", "sent", "read")


def mixed_jobs(count: int) -> list[str]:
    """Short, slower and failing ones."""
    jobs = []
    for number in range(count):
        if number % 10 == 3:
            jobs.append(job_text(number, "boom", retry=5))
        else:
            jobs.append(job_text(number, args=[0.006 if number % 10 == 7 else 0.0]))
    return jobs


def until_dead(fleet: Fleet, worker: KillWorker) -> None:
    """Wait until the worker has killed itself."""
    pid = worker.pid
    assert worker.wait(60) == -signal.SIGKILL, worker.log_tail()
    fleet.deaths[pid] = time.monotonic()
    fleet.in_flight_at_deaths += fleet.in_flight_of(pid)


def finish(fleet: Fleet, pushed: int, report: Callable[[object], None]) -> None:
    """Let a sound worker do the rest, and look at the books."""
    fleet.start(wait=False)
    fleet.wait_until_done()
    books = fleet.books(pushed)
    report(f"{books}; in_flight_at_deaths={fleet.in_flight_at_deaths}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == pushed
    assert books.again <= fleet.in_flight_at_deaths
    retried = fleet.client.zcard("retry")
    failed = {number for number in range(pushed) if number % 10 == 3}
    assert retried in (0, len(failed))
    assert fleet.ledger.overlaps(fleet.deaths) == []


@pytest.mark.parametrize(
    ("fault", "nth"),
    [
        ("after the fetch", 5),
        ("when a job is taken", 50),
        ("when a batch is closed", 5),
        ("in middleware", 120),
        ("in perform", 120),
        ("before settling a success", 90),
        ("after settling a success", 90),
        ("before settling a failure", 7),
        ("after settling a failure", 7),
        *[(f"fetch {moment}", 1) for moment in MOMENTS],
        *[(f"acknowledge {moment}", 1) for moment in MOMENTS],
        *[(f"take {moment}", 1) for moment in MOMENTS],
        *[(f"acknowledge_listed {moment}", 1) for moment in MOMENTS],
        *[(f"settle {moment}", 9) for moment in MOMENTS],
    ],
)
def test_a_worker_is_killed_on_a_job_s_way(
    fleet: Fleet, report: Callable[[object], None], fault: str, nth: int
) -> None:
    """At the nth passage of that step, with jobs before and behind it."""
    push_jobs(fleet.client, mixed_jobs(JOBS))
    fleet.keep_retries()

    until_dead(fleet, fleet.start(wait=False, fault=fault, nth=nth))

    assert fleet.books(JOBS).lost == ()
    finish(fleet, JOBS, report)


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_idle_worker_is_killed_as_a_job_arrives(fleet: Fleet, report: Callable[[object], None], moment: str) -> None:
    """Its blocking move and the look behind it are on their way."""
    worker = fleet.start(fault=f"wait {moment}", nth=3)
    number = 0
    while worker.is_running and number < JOBS:
        push_jobs(fleet.client, [job_text(number)])
        number += 1
        time.sleep(0.02)

    until_dead(fleet, worker)

    while number % 10 != 3:
        push_jobs(fleet.client, [job_text(number)])
        number += 1
    finish(fleet, number, report)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_is_killed_while_it_gives_its_jobs_back(
    fleet: Fleet, report: Callable[[object], None], moment: str
) -> None:
    """At the deadline of a stop."""
    push_jobs(fleet.client, [job_text(number, "heedful", [60]) for number in range(3)])
    worker = fleet.start(fault=f"give_back {moment}", nth=2, shutdown_timeout_seconds=0.2)
    eventually(lambda: fleet.ledger.count("S") == 3)
    worker.send_signal(signal.SIGTERM)

    until_dead(fleet, worker)

    shorter = fleet.client.lrange("queue:default", 0, -1)
    books = fleet.books(3)
    report(f"{books}; in_flight_at_deaths={fleet.in_flight_at_deaths} given_back={len(shorter)}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.waiting == 3
    fleet.start(wait=False)
    eventually(lambda: fleet.ledger.count("S") == 6)
    assert fleet.ledger.overlaps(fleet.deaths) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_is_killed_while_it_moves_due_jobs(
    fleet: Fleet, report: Callable[[object], None], moment: str
) -> None:
    """Each is in its set or in its queue, never in both."""
    members = {job_text(number, args=[0.001]): time.time() - 1 for number in range(JOBS)}
    fleet.client.zadd("schedule", members)
    fleet.client.sadd("queues", "default")

    until_dead(fleet, fleet.start(wait=False, fault=f"promote {moment}", nth=2))

    books = fleet.books(JOBS)
    assert (books.lost, books.doubled) == ((), ())
    # Its lease as the quick poller would end in three seconds.
    fleet.client.delete("sidekiq_py:poller")
    finish(fleet, JOBS, report)


@pytest.mark.parametrize("script", ["fence", "recover"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_is_killed_while_it_recovers_the_jobs_of_another(
    fleet: Fleet, report: Callable[[object], None], script: str, moment: str
) -> None:
    """A third one brings all of them back."""
    push_jobs(fleet.client, [job_text(number, "stubborn", [1]) for number in range(20)])
    first = fleet.start(concurrency=10)
    eventually(lambda: fleet.ledger.count("S") >= 10)
    [owner] = fleet.owners_of(first.pid)
    fleet.kill(first)
    fleet.client.lmove("queue:default", f"sidekiq_py:inbox:{owner}:default", "RIGHT", "LEFT")

    until_dead(fleet, fleet.start(wait=False, fault=f"{script} {moment}"))

    books = fleet.books(20)
    assert (books.lost, books.doubled) == ((), ())
    finish(fleet, 20, report)
