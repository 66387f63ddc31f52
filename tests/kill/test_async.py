"""`async def` jobs: killed and stopped with a hundred of them on the loop."""

import signal
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet
from tests.support.ledger import ENDED, STARTED, job_text, push_jobs
from tests.support.waiting import eventually


@pytest.mark.parametrize("jobs", [3000, pytest.param(8000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_nothing_is_lost_while_event_loops_are_killed(
    fleet: Fleet, report: Callable[[object], None], jobs: int
) -> None:
    """What runs twice was on the loop, or had ended just before."""
    fleet.defaults = {"has_async_jobs": True}
    push_jobs(fleet.client, [job_text(number, "atick", [0.02]) for number in range(jobs)])
    workers = [fleet.start(wait=False) for _ in range(2)]
    kills = 8
    for kill in range(kills):
        eventually(lambda kill=kill: fleet.ledger.count(STARTED) >= jobs // 10 * (kill + 1))
        victim = max(workers, key=lambda worker: fleet.in_flight_of(worker.pid))
        fleet.kill(victim)
        workers.remove(victim)
        workers.append(fleet.start(wait=False))
    fleet.wait_until_done()

    books = fleet.books(jobs)
    report(f"{books}; kills={kills} in_flight_at_deaths={fleet.in_flight_at_deaths}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == jobs
    assert 0 < books.again <= fleet.in_flight_at_deaths
    assert fleet.ledger.overlaps(fleet.deaths) == []


def test_a_loop_that_is_stopped_gives_its_jobs_back(fleet: Fleet, report: Callable[[object], None]) -> None:
    """At the deadline each is cancelled, and runs once more elsewhere; none is counted before."""
    fleet.defaults = {"has_async_jobs": True}
    push_jobs(fleet.client, [job_text(number, "atick", [2]) for number in range(150)])
    first = fleet.start(shutdown_timeout_seconds=0.2)
    eventually(lambda: fleet.ledger.count(STARTED) == 100)

    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    assert fleet.ledger.count(ENDED) == 0
    assert (fleet.in_flight, fleet.client.llen("queue:default")) == (0, 150)
    fleet.start()
    fleet.wait_until_done()

    books = fleet.books(150)
    report(books)
    assert (books.again, books.lost, books.doubled) == (100, (), ())
    eventually(lambda: fleet.client.get("stat:processed") == b"150")
    assert fleet.client.zcard("retry") == 0
