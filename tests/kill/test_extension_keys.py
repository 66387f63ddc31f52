"""Jobs of a batch on a queue that Python serves: given back once, whatever happens to the worker meanwhile."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet
from tests.support.ledger import job_text, push_jobs, stock
from tests.support.waiting import eventually

JOBS = 200
BATCHED = 60
TEXT = job_text(BATCHED, queue="mixed", bid="b-7KyWqDV3Z0Pg")
REFUSED = "no longer serves mixed until it is restarted"


def push_all(fleet: Fleet) -> list[int]:
    """Half of the jobs on each queue, one of a batch among them; the numbers of those on `own`."""
    mixed, own = range(JOBS // 2), range(JOBS // 2, JOBS)
    texts = [TEXT if number == BATCHED else job_text(number, queue="mixed", args=[0.001]) for number in mixed]
    push_jobs(fleet.client, texts, "mixed")
    push_jobs(fleet.client, [job_text(number, queue="own", args=[0.001]) for number in own], "own")
    return list(own)


def is_settled(fleet: Fleet, own: list[int]) -> bool:
    """All of `own` has run, nothing is in flight, and the job of the batch stands in its queue."""
    ran = set(fleet.ledger.runs_by_number())
    return ran.issuperset(own) and not fleet.in_flight and TEXT.encode() in stock(fleet.client).get("queue:mixed", [])


@pytest.mark.parametrize("weight", [0, 1], ids=["strict", "drawn"])
def test_the_queue_is_left_to_others_and_nothing_is_lost(
    fleet: Fleet, report: Callable[[object], None], weight: int
) -> None:
    """The bytes are the same, the log says it once, and whoever serves the queue next finds all that is left."""
    own = push_all(fleet)
    worker = fleet.start(queues=[("mixed", weight), ("own", weight)])

    eventually(lambda: worker.log.count(REFUSED) == 1)
    eventually(lambda: is_settled(fleet, own))
    books = fleet.books(JOBS)
    report(books)
    assert (books.lost, books.doubled, books.again) == ((), (), 0)
    assert stock(fleet.client)["queue:mixed"].count(TEXT.encode()) == 1
    assert BATCHED not in fleet.ledger.runs_by_number()
    assert not fleet.client.exists("retry", "dead")

    fleet.start(queues=[("mixed", 0)], extension_keys={"bid": "run"})

    fleet.wait_until_done(60)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    books = fleet.books(JOBS)
    assert (books.once, books.again, books.lost) == (JOBS, 0, ())
    assert worker.log.count(REFUSED) == 1


@pytest.mark.parametrize("processes", [None, 2], ids=["two workers", "two children"])
def test_each_process_refuses_the_job_once(
    fleet: Fleet, report: Callable[[object], None], processes: int | None
) -> None:
    """It does not go back and forth between them."""
    settings = {"queues": [("mixed", 0), ("own", 0)], "concurrency": 2, "processes": processes}
    workers = [fleet.start(wait=False, **settings) for _ in range(1 if processes else 2)]
    for worker in workers:
        worker.wait_until_ready(processes=processes or 1)
    push_jobs(fleet.client, [TEXT], "mixed")
    refused = lambda: sum(worker.log.count(REFUSED) for worker in workers)  # noqa: E731

    eventually(lambda: refused() == 2)
    push_jobs(fleet.client, [job_text(number, queue="own") for number in range(BATCHED)], "own")

    eventually(lambda: len(fleet.ledger.runs_by_number()) == BATCHED and not fleet.in_flight)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert [worker.wait(60) for worker in workers] == [0] * len(workers)
    assert refused() == 2
    assert stock(fleet.client) == {"queue:mixed": [TEXT.encode()]}
    report(fleet.books(BATCHED + 1))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("moment", ["before", "sent", "read"])
def test_a_worker_that_is_killed_as_it_gives_the_job_back_loses_nothing(
    fleet: Fleet, report: Callable[[object], None], moment: str, nth: int
) -> None:
    """It, or what had been fetched behind it; the next worker brings everything back, and refuses the job again."""
    own = push_all(fleet)
    push_jobs(fleet.client, [job_text(JOBS, queue="third", bid="b")], "third")
    queues = [("mixed", 0), ("third", 0), ("own", 0)]
    first = fleet.start(wait=False, queues=queues, fault=f"give_back {moment}", nth=nth)
    pid = first.pid
    assert first.wait(60) == -signal.SIGKILL, first.log_tail()
    fleet.deaths[pid] = time.monotonic()
    fleet.in_flight_at_deaths += fleet.in_flight_of(pid)
    assert fleet.books(JOBS + 1).lost == ()

    second = fleet.start(queues=queues)

    eventually(lambda: second.log.count("until it is restarted") == 2)
    eventually(lambda: is_settled(fleet, own))
    books = fleet.books(JOBS + 1)
    report(f"{books}; in_flight_at_deaths={fleet.in_flight_at_deaths}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.again <= fleet.in_flight_at_deaths
    assert {BATCHED, JOBS}.isdisjoint(fleet.ledger.runs_by_number())
    assert not fleet.client.exists("retry", "dead")
