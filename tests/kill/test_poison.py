"""Jobs that kill their process: they end in `dead`, and nobody else does."""

import json
import time
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet
from tests.kill.test_named_steps import until_dead
from tests.support.ledger import DIED, STARTED, job_text, number_of, push_jobs
from tests.support.waiting import eventually


def work_until_done(fleet: Fleet, most: int, **settings: object) -> int:
    """Start a worker again whenever it has died; how many died."""
    deaths = 0
    while True:
        worker = fleet.start(wait=False, **settings)
        eventually(lambda worker=worker: not worker.is_running or fleet.is_done)
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
    [dead_lettered] = map(json.loads, dead)
    assert dead_lettered.pop("error_class").endswith(".PoisonPillError")
    assert dead_lettered.pop("error_message").startswith("the process died 3 times")
    assert dead_lettered == json.loads(texts[place])
    assert fleet.ledger.numbers(DIED) == {place: 1}
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again - 1 == jobs - 1
    assert fleet.client.exists("sidekiq_py:suspects") == 0


def test_several_culprits_find_no_innocent_to_take_along(fleet: Fleet, report: Callable[[object], None]) -> None:
    """
    Each dies for itself.

    The process that buries one may be killed by the next before it has called the death handlers; another one does, and
    calls them twice where it was killed just after.
    """
    jobs = 120
    # Each costs four starts of a worker, which take seconds where the machine is busy.
    culprits = {10, 90}
    texts = [job_text(n, "poison") if n in culprits else job_text(n, args=[0.02]) for n in range(jobs)]
    push_jobs(fleet.client, texts)

    deaths = work_until_done(fleet, 16, concurrency=5)

    eventually(lambda: fleet.client.zcard("dead") == len(culprits))
    eventually(lambda: fleet.ledger.numbers(DIED).keys() == culprits)
    dead = {number_of(raw) for raw in fleet.client.zrange("dead", 0, -1)}
    books = fleet.books(jobs)
    announced = fleet.ledger.numbers(DIED)
    report(f"{books}; deaths={deaths} dead={sorted(dead)} announced={announced}")
    assert dead == announced.keys() == culprits
    assert max(announced.values()) <= 2
    eventually(lambda: not fleet.client.exists("sidekiq_py:deaths"))
    assert (books.lost, books.doubled) == ((), ())


@pytest.mark.parametrize(("fault", "calls"), [("before", 1), ("after", 2)])
def test_a_death_is_announced_though_the_process_that_buried_the_job_is_killed(
    fleet: Fleet, fault: str, calls: int
) -> None:
    """By another one that has death handlers: at least once, and twice where the first had just called them."""
    push_jobs(fleet.client, [job_text(0, "poison", [0.0])])
    for _ in range(4):
        worker = fleet.start(wait=False)
        eventually(lambda worker=worker: not worker.is_running)
        fleet.deaths[worker.pid] = time.monotonic()

    until_dead(fleet, fleet.start(wait=False, fault=f"{fault} a death is announced"))
    assert (fleet.client.zcard("dead"), fleet.ledger.count(DIED)) == (1, calls - 1)
    fleet.start(wait=False)

    eventually(lambda: fleet.ledger.numbers(DIED) == {0: calls})
    eventually(lambda: not fleet.client.exists("sidekiq_py:deaths"))


@pytest.mark.parametrize("retry", [False, 0])
@pytest.mark.parametrize(("fault", "calls"), [("before", 1), ("after", 2)])
def test_the_death_of_a_job_without_tries_left_is_announced_though_its_process_is_killed(
    fleet: Fleet, fault: str, calls: int, retry: bool | int
) -> None:
    """Whether it went to `dead` or left nothing; the job itself does not run again."""
    push_jobs(fleet.client, [job_text(0, "boom", retry=retry)])

    until_dead(fleet, fleet.start(wait=False, fault=f"{fault} a death is announced"))
    assert fleet.client.zcard("dead") == (retry is not False)
    fleet.start(wait=False)

    eventually(lambda: fleet.ledger.numbers(DIED) == {0: calls})
    eventually(lambda: not fleet.client.exists("sidekiq_py:deaths"))
    assert fleet.ledger.count(STARTED) == 1


def test_a_job_that_only_failed_to_be_lucky_is_not_remembered(fleet: Fleet, report: Callable[[object], None]) -> None:
    """It was recovered once, and ran to its end: its name is cleared."""
    push_jobs(fleet.client, [job_text(number, args=[2]) for number in range(5)])
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
