"""Jobs that kill their process: they end in `dead`, and nobody else does."""

import json
import time
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet
from tests.support.ledger import DIED, STARTED, job_text, number_of, push_jobs
from tests.support.waiting import eventually


def work_until_done(fleet: Fleet, most: int, **settings: object) -> int:
    """Start a worker again whenever it has died; how many died."""
    deaths = 0
    while True:
        worker = fleet.start(wait=False, **settings)
        eventually(lambda worker=worker: not worker.is_running or fleet.is_done, 30)
        if worker.is_running:
            return deaths
        fleet.deaths[worker.pid] = time.monotonic()
        fleet.in_flight_at_deaths += fleet.in_flight_of(worker.pid)
        deaths += 1
        assert deaths <= most, "the culprit is not found"


@pytest.mark.parametrize(
    ("place", "jobs", "seconds"),
    [(0, 300, 0.02), (150, 300, 0.02), (4000, 6000, 0.0)],
    ids=["first of all", "among jobs that run", "with a full buffer"],
)
def test_a_job_that_kills_its_process_is_buried_and_no_innocent_with_it(
    fleet: Fleet, report: Callable[[object], None], place: int, jobs: int, seconds: float
) -> None:
    """Others are in flight around it each time; the third death after a start mark is its last."""
    texts = [job_text(number, args=[seconds]) for number in range(jobs)]
    texts[place] = job_text(place, "poison", [0.05 if seconds else 0.0])
    push_jobs(fleet.client, texts)

    deaths = work_until_done(fleet, 6, concurrency=10)

    eventually(lambda: fleet.ledger.count(DIED) == 1)
    dead = fleet.client.zrange("dead", 0, -1)
    books = fleet.books(jobs)
    report(
        f"{books}; deaths={deaths} in_flight_at_deaths={fleet.in_flight_at_deaths} dead={list(map(number_of, dead))}"
    )
    assert deaths == 4
    [buried] = map(json.loads, dead)
    assert buried.pop("error_class").endswith(".PoisonPillError")
    assert buried.pop("error_message").startswith("the process died 3 times")
    assert buried == json.loads(texts[place])
    assert fleet.ledger.numbers(DIED) == {place: 1}
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again - 1 == jobs - 1
    assert fleet.client.exists("sidekiq_py:suspects") == 0


def test_several_culprits_find_no_innocent_to_take_along(fleet: Fleet, report: Callable[[object], None]) -> None:
    """
    Each dies for itself.

    The process that buries one may be killed by the next before it has called the death handlers; nobody calls them
    then.
    """
    jobs = 120
    culprits = {10, 50, 90}
    texts = [job_text(n, "poison") if n in culprits else job_text(n, args=[0.02]) for n in range(jobs)]
    push_jobs(fleet.client, texts)

    deaths = work_until_done(fleet, 16, concurrency=5)

    eventually(lambda: fleet.client.zcard("dead") == len(culprits))
    dead = {number_of(raw) for raw in fleet.client.zrange("dead", 0, -1)}
    books = fleet.books(jobs)
    announced = fleet.ledger.numbers(DIED)
    report(f"{books}; deaths={deaths} dead={sorted(dead)} announced={sorted(announced)}")
    assert dead == culprits
    assert announced.keys() <= culprits
    assert set(announced.values()) <= {1}
    assert (books.lost, books.doubled) == ((), ())


def test_a_job_that_only_failed_to_be_lucky_is_not_remembered(fleet: Fleet, report: Callable[[object], None]) -> None:
    """It was recovered once, and ran to its end: its name is cleared."""
    push_jobs(fleet.client, [job_text(number, args=[0.3]) for number in range(5)])
    worker = fleet.start()
    eventually(lambda: fleet.ledger.count(STARTED) == 5)
    fleet.kill(worker)
    fleet.start()
    eventually(lambda: fleet.client.hlen("sidekiq_py:suspects") == 5)

    fleet.wait_until_done()

    books = fleet.books(5)
    report(books)
    assert books.again == 5
    assert fleet.client.exists("sidekiq_py:suspects") == 0
