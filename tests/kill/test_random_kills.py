"""Workers are killed at random moments while they work through many jobs."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.kill.conftest import Fleet
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.process_states import children_of
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess, WorkerProcess

JOBS = 20_000
WORKERS = 3
# A success is handed in within some milliseconds; a process that is short of CPU takes longer.
JUST_BEFORE_SECONDS = 1.0
# On a machine where a process starts more slowly than it is killed, the queue would never be empty.
MOST_KILLS = 20


def wait_until_at_work(fleet: Fleet, worker: SidekiqProcess) -> None:
    """Or until nothing is left to do. On a busy machine a process takes seconds to start, and would be killed idle."""

    def has_started_a_job() -> bool:
        family = {worker.pid, *children_of(worker.pid)}
        return any(event == STARTED and pid in family for event, _, pid, *_ in fleet.ledger.lines())

    eventually(lambda: has_started_a_job() or not fleet.client.llen("queue:default"), every_seconds=0.1)


def test_nothing_is_lost_while_workers_are_killed(fleet: Fleet, report: Callable[[object], None]) -> None:
    """What runs twice was in flight in a process that was killed: it ran, or had ended just before."""
    draw = random.Random(20_000)
    workers = [fleet.start() for _ in range(WORKERS)]
    push_jobs(fleet.client, [job_text(number, args=[draw.choice([0, 0.001, 0.003])]) for number in range(JOBS)])

    while fleet.client.llen("queue:default") and len(fleet.deaths) < MOST_KILLS:
        time.sleep(draw.uniform(0.05, 0.5))
        victim = draw.randrange(WORKERS)
        wait_until_at_work(fleet, workers[victim])
        fleet.kill(workers[victim])
        workers[victim] = fleet.start(wait=False)
    fleet.wait_until_done()

    books = fleet.books(JOBS)
    again = [runs for runs in fleet.ledger.runs_by_number().values() if len(runs) > 1]
    firsts = [run for runs in again for run in runs[:-1]]
    ages = [fleet.deaths[run.pid] - run.end for run in firsts if run.end is not None]
    report(
        f"{books}; kills={len(fleet.deaths)} in_flight_at_deaths={fleet.in_flight_at_deaths} "
        f"cut_off={sum(run.end is None for run in firsts)} ended_just_before={len(ages)} "
        f"oldest_of_them={max(ages, default=0) * 1000:.1f}ms"
    )
    assert books.lost == ()
    assert books.doubled == ()
    assert books.once + books.again == JOBS
    assert fleet.in_flight_at_deaths
    assert len(firsts) <= fleet.in_flight_at_deaths
    assert all(run.pid in fleet.deaths for run in firsts)
    assert max(ages, default=0) < JUST_BEFORE_SECONDS
    assert fleet.ledger.overlaps(fleet.deaths) == []


PROGRAM = """
import os
import time

import sidekiq_py as sidekiq
from tests.support.ledger import ENDED, STARTED, LedgerWriter

ledger = LedgerWriter(os.environ["LEDGER"])


@sidekiq.job(name="tick")
def tick(number, seconds):
    ledger.note(STARTED, number)
    time.sleep(seconds)
    ledger.note(ENDED, number)
"""


def test_nothing_is_lost_by_workers_of_the_command_line(
    fleet: Fleet, report: Callable[[object], None], tmp_path: Path
) -> None:
    """As users start them: one alone, and a parent with two children, each killed in turn."""
    (tmp_path / "program.py").write_text(PROGRAM)
    jobs = 6000

    def start(*arguments: str) -> WorkerProcess:
        worker = WorkerProcess(
            "program",
            redis_url=fleet.redis_url,
            arguments=["-c", "5", *arguments],
            environment={"LEDGER": str(fleet.ledger.path)},
            python_path=[tmp_path],
        ).start()
        fleet.exits.callback(worker.stop)
        return worker

    workers = [start().wait_until_ready(), start("--processes", "2").wait_until_ready(processes=2)]
    push_jobs(fleet.client, [job_text(number, args=[0.01]) for number in range(jobs)])
    kills = 0
    while fleet.client.llen("queue:default") and kills < MOST_KILLS:
        time.sleep(1)
        victim = workers[kills % 2]
        wait_until_at_work(fleet, victim)
        fleet.deaths[victim.pid] = time.monotonic()
        victim.kill()
        workers[kills % 2] = start(*([] if kills % 2 == 0 else ["--processes", "2"]))
        kills += 1
    fleet.wait_until_done()

    books = fleet.books(jobs)
    report(f"{books}; kills={kills}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == jobs
    assert 0 < books.again <= 20 * kills
