"""`--processes N`: children that die, a parent that dies, and jobs past their hard limit."""

import json
import os
import signal
import time
from collections.abc import Callable

from tests.kill.conftest import Fleet, KillWorker
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.process_states import children_of, state_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


def kill_child(fleet: Fleet, pid: int) -> float:
    """SIGKILL; when."""
    fleet.deaths[pid] = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return fleet.deaths[pid]


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    return state_of(pid) not in "ZX"


def ready(fleet: Fleet, processes: int, **settings: object) -> KillWorker:
    """A parent whose children all are at work."""
    return fleet.start(wait=False, processes=processes, **settings).wait_until_ready(processes=processes)


def test_the_jobs_of_a_child_that_was_killed_run_at_once_in_its_sibling(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """The parent tells the sibling who died; nobody waits for a lease, and the child is replaced."""
    parent = ready(fleet, 2, concurrency=5)
    push_jobs(fleet.client, [job_text(number, "stubborn", [3]) for number in range(5)])
    eventually(lambda: fleet.ledger.count(STARTED) == 5)
    victim = fleet.ledger.runs()[0].pid
    cut_off = {run.number for run in fleet.ledger.runs() if run.pid == victim}

    died_at = kill_child(fleet, victim)

    eventually(lambda: fleet.ledger.count(STARTED) == 5 + len(cut_off))
    again = [run.start - died_at for run in fleet.ledger.runs() if run.number in cut_off and run.pid != victim]
    eventually(lambda: len(children_of(parent.pid)) == 2 and victim not in children_of(parent.pid))
    fleet.wait_until_done()
    books = fleet.books(5)
    report(
        f"{books}; {len(cut_off)} jobs ran again {min(again) * 1000:.0f} to {max(again) * 1000:.0f} ms after the kill"
    )
    # A lease lasts thirty.
    assert max(again) < 10
    assert (books.lost, books.doubled) == ((), ())
    assert books.again == len(cut_off)
    assert fleet.ledger.overlaps(fleet.deaths) == []


def test_nothing_is_lost_while_children_are_killed(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Again and again, while they work; the parent replaces each."""
    parent = ready(fleet, 3, concurrency=5)
    kills, slice_of_jobs = 4, 2000
    jobs = kills * slice_of_jobs
    for kill in range(kills):
        started = fleet.ledger.count(STARTED)
        first = kill * slice_of_jobs
        push_jobs(fleet.client, [job_text(first + number, args=[0.003]) for number in range(slice_of_jobs)])
        eventually(lambda started=started: fleet.ledger.count(STARTED) > started + 100)
        family = eventually(lambda: family if len(family := children_of(parent.pid)) == 3 else None)
        kill_child(fleet, family[kill % 3])
    fleet.wait_until_done(60)

    books = fleet.books(jobs)
    report(f"{books}; kills={kills}")
    assert parent.is_running
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == jobs
    assert fleet.ledger.overlaps(fleet.deaths) == []


def test_children_stop_in_order_when_their_parent_is_killed(fleet: Fleet, report: Callable[[object], None]) -> None:
    """What they run they end; nothing is left in flight."""
    parent = ready(fleet, 2, concurrency=2)
    push_jobs(fleet.client, [job_text(number, args=[2]) for number in range(8)])
    eventually(lambda: fleet.ledger.count(STARTED) == 4)
    family = children_of(parent.pid)

    parent.kill()

    eventually(lambda: not any(is_alive(pid) for pid in family))
    books = fleet.books(8)
    report(books)
    assert not fleet.in_flight
    assert (books.once, books.waiting, books.again, books.lost) == (4, 4, 0, ())


def test_a_parent_that_is_told_to_stop_stops_its_children(fleet: Fleet, report: Callable[[object], None]) -> None:
    """And ends with 0 when they have."""
    parent = ready(fleet, 2, concurrency=2, shutdown_timeout_seconds=5)
    push_jobs(fleet.client, [job_text(number, args=[2]) for number in range(8)])
    eventually(lambda: fleet.ledger.count(STARTED) == 4)
    family = children_of(parent.pid)

    parent.send_signal(signal.SIGTERM)

    assert parent.wait(60) == 0
    books = fleet.books(8)
    report(books)
    assert not any(is_alive(pid) for pid in family)
    assert (books.once, books.waiting, books.again, books.lost) == (4, 4, 0, ())


def test_a_job_past_its_hard_limit_fails_once_and_its_child_is_replaced(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """It is settled as failed before its process is killed, so nobody recovers it and runs it again."""
    fleet.keep_retries()
    parent = ready(fleet, 2, concurrency=1, hard_timeout_seconds=2)
    family = children_of(parent.pid)
    push_jobs(fleet.client, [job_text(0, "endless", [60]), *[job_text(number) for number in range(1, 50)]])

    eventually(lambda: fleet.client.zcard("retry") == 1)
    eventually(lambda: set(children_of(parent.pid)) != set(family) and len(children_of(parent.pid)) == 2)
    parent.wait_until_ready(processes=2)
    push_jobs(fleet.client, [job_text(number) for number in range(50, 100)])
    fleet.wait_until_done()

    books = fleet.books(100)
    [retried] = fleet.client.zrange("retry", 0, -1)
    starts = fleet.ledger.numbers(STARTED)[0]
    report(f"{books}; starts of the endless job={starts}")
    assert starts == 1
    assert json.loads(retried)["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
    assert json.loads(retried)["retry_count"] == 0
    assert (books.once, books.lost, books.doubled) == (99, (), ())
    assert fleet.client.get("stat:failed") == b"1"
    assert fleet.client.exists("sidekiq_py:suspects") == 0
    # The kernel may take longer to end it than the replacement takes for fifty jobs.
    eventually(lambda: "was killed by SIGKILL; the jobs that it still had in flight go back" in parent.log)


def test_children_that_are_killed_for_a_hard_limit_are_replaced_without_a_pause(fleet: Fleet) -> None:
    """They did start: nothing is wrong with the program that a pause could spare the machine."""
    fleet.keep_retries()
    parent = ready(fleet, 1, concurrency=1, hard_timeout_seconds=0.2)
    push_jobs(fleet.client, [job_text(number, "endless", [60]) for number in range(3)])

    eventually(lambda: fleet.client.zcard("retry") == 3)
    parent.wait_until_ready(processes=1)

    assert "died soon after its start" not in parent.log


def test_a_sibling_that_cannot_answer_does_not_keep_a_hard_limit_from_being_enforced(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """Its job holds the interpreter lock; the child that is started in its place settles, once."""
    fleet.keep_retries()
    ready(fleet, 2, concurrency=1, hard_timeout_seconds=1)
    push_jobs(fleet.client, [job_text(0, "hog", [120])])
    eventually(lambda: fleet.ledger.count(STARTED) == 1)
    push_jobs(fleet.client, [job_text(1, "endless", [60])])

    [retried] = eventually(lambda: fleet.client.zrange("retry", 0, -1))

    starts = fleet.ledger.numbers(STARTED)
    report(f"starts={dict(starts)}")
    assert json.loads(retried)["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
    assert starts == {0: 1, 1: 1}
    assert fleet.client.mget("stat:processed", "stat:failed") == [b"1", b"1"]


def test_a_hard_limit_that_comes_due_while_all_stop_keeps_nobody_at_work(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """
    Whoever was started to settle the job goes, too, and the parent ends. If the next job were begun first, and ran past
    its limit as well, another process would be started: with a queue of such jobs, the stop might never end.
    """
    fleet.keep_retries()
    # Long enough for all three to begin on a busy machine before the first one is over it.
    parent = ready(fleet, 3, concurrency=1, hard_timeout_seconds=12)
    push_jobs(fleet.client, [job_text(number, "endless", [600]) for number in range(20)])
    eventually(lambda: fleet.ledger.count(STARTED) == 3)

    parent.send_signal(signal.SIGTERM)

    assert parent.wait(60) == 0
    books = fleet.books(20)
    report(books)
    assert fleet.client.zcard("retry") == 3
    assert (fleet.ledger.count(STARTED), books.lost, books.doubled) == (3, (), ())


def test_jobs_that_end_just_at_their_hard_limit_are_settled_once(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """
    Either they came to their end or they failed; none does both, none does neither.

    A job may write its last line and be stopped before it returns: it failed then, and its line is in the ledger.
    """
    jobs = 40
    fleet.keep_retries()
    ready(fleet, 2, concurrency=1, hard_timeout_seconds=0.2)
    push_jobs(fleet.client, [job_text(n, "endless", [0.15 + 0.1 * n / jobs], retry=3) for n in range(jobs)])

    fleet.wait_until_done(60)

    failed = {json.loads(raw)["args"][0] for raw in fleet.client.zrange("retry", 0, -1)}
    processed, failures = map(int, fleet.client.mget("stat:processed", "stat:failed"))
    books = fleet.books(jobs)
    report(f"{books}; succeeded={processed - failures} failed={len(failed)}")
    assert (books.lost, books.doubled, books.again) == ((), (), 0)
    # A process that is killed takes with it what it had not written yet of the number of its successes.
    assert failures <= processed <= jobs
    assert failures == len(failed)
    assert 0 < len(failed) < jobs


def test_a_hard_limit_is_enforced_when_redis_is_back(
    durable_fleet: Fleet, durable_server: RedisServer, report: Callable[[object], None]
) -> None:
    """Killed while nobody could settle it, the job would come back as the job of a dead process and run again."""
    fleet = durable_fleet
    fleet.keep_retries()
    parent = ready(fleet, 2, concurrency=1, hard_timeout_seconds=1, socket_timeout_seconds=0.5)
    push_jobs(fleet.client, [job_text(0, "endless", [60])])
    eventually(lambda: fleet.ledger.count(STARTED) == 1)

    with durable_server.paused():
        time.sleep(3)

    eventually(lambda: fleet.client.zcard("retry") == 1)
    eventually(lambda: "was killed by SIGKILL" in parent.log)
    fleet.wait_until_done()
    books = fleet.books(1)
    report(f"{books}; starts={fleet.ledger.count(STARTED)}")
    assert fleet.ledger.count(STARTED) == 1
    assert (books.lost, books.doubled) == ((), ())


def test_a_rolling_restart_under_load_runs_each_job_once(fleet: Fleet, report: Callable[[object], None]) -> None:
    """The next child goes only when its successor is at work; what each had fetched goes back."""
    parent = ready(fleet, 2, concurrency=3)
    jobs = 6000
    push_jobs(fleet.client, [job_text(number, args=[0.002]) for number in range(jobs)])
    family = set(children_of(parent.pid))
    eventually(lambda: fleet.ledger.count(STARTED) > 300)

    parent.send_signal(signal.SIGHUP)

    fleet.wait_until_done(60)
    eventually(lambda: not family & set(children_of(parent.pid)) and len(children_of(parent.pid)) == 2)
    books = fleet.books(jobs)
    report(f"{books}; processes that ran jobs={len({run.pid for run in fleet.ledger.runs()})}")
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs)
