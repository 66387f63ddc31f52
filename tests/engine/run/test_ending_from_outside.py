"""Jobs that are ended from outside while they run."""

import asyncio
import pickle
import threading
from functools import partial

import pytest
import redis

from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.interrupts import Guard
from sidekiq_py.errors import TerminatedError
from sidekiq_py.outcome import Outcome
from tests.engine.embedded_worker import Worker
from tests.engine.fetch.in_flight_jobs import ABOUT, OWNER, fetch, held
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually


def unit() -> UnitOfWork:
    """Some job."""
    return UnitOfWork(b"{}", "default", None, b"1.0:default", False, 0.0)


def test_only_a_job_that_is_performed_is_terminated() -> None:
    """One that has ended is not: its thread has another by now."""
    guard, ended, running = Guard(), unit(), unit()
    notified: list[UnitOfWork] = []
    guard.performing = running

    assert not guard.terminate(ended, lambda: notified.append(ended))
    assert guard.terminate(running, lambda: notified.append(running))
    assert notified == [running]
    assert guard.terminated is running


def test_a_job_cannot_end_while_it_is_terminated() -> None:
    """Its thread waits for whoever tells the parent, so that its last word comes behind that."""
    guard, running = Guard(), unit()
    guard.performing = running
    said: list[str] = []
    is_notified = threading.Event()

    def notify() -> None:
        is_notified.set()
        threading.Event().wait(0.05)
        said.append("terminate")

    thread = threading.Thread(target=guard.terminate, args=(running, notify))
    thread.start()
    is_notified.wait()
    guard.performing = None
    if guard.is_requested:
        guard.absorb()
    said.append("end")
    thread.join()

    assert guard.terminated is running
    assert said == ["terminate", "end"]


def test_a_coroutine_is_cancelled_and_fails_by_that(redis_client: redis.Redis, worker: Worker) -> None:
    """By Sidekiq's rules it is retried."""
    seen: list[str] = []

    async def wait(number: int) -> None:
        seen.append(f"start {number}")
        try:
            await asyncio.sleep(600)
        finally:
            seen.append(f"end {number}")

    worker.declare("wait", wait, is_async=True)
    launcher = worker.start()
    push_jobs(redis_client, [job_text(1, "wait")])
    eventually(lambda: "start 1" in seen)
    [job] = eventually(launcher.state.snapshot)

    assert launcher.termination.terminate(job.unit, 15)
    assert not launcher.termination.terminate(unit(), 15)

    [(member, _)] = eventually(lambda: redis_client.zrange("retry", 0, -1, withscores=True))
    assert b"TerminatedError" in member
    assert seen == ["start 1", "end 1"]


def test_a_thread_cannot_be_ended(redis_client: redis.Redis, worker: Worker) -> None:
    """There is no parent that could kill this process."""
    go_on = threading.Event()
    worker.declare("block", lambda _: go_on.wait(60))
    launcher = worker.start()
    push_jobs(redis_client, [job_text(1, "block")])
    [job] = eventually(launcher.state.snapshot)

    assert not launcher.termination.terminate(job.unit, 15)
    go_on.set()


class Killed:
    """A job that another process had in flight and ended by force; it decides about its end itself."""

    def __init__(self, worker: Worker, client: redis.Redis) -> None:
        self.definition = worker.declare("killed", lambda _: None)
        launcher = worker.start()
        link = launcher.parts.pool.new_link()
        push_jobs(client, [job_text(1, "killed")], "elsewhere")
        [(self.field, self.raw)] = fetch(link, ("elsewhere", 0), registration=ABOUT)
        link.close()
        self.settle = partial(launcher.termination.settle_past_time_limit, OWNER, self.field, "5.0")


def test_what_follows_the_end_of_a_job_follows_that_of_a_killed_one(redis_client: redis.Redis, worker: Worker) -> None:
    """As where it ends in its own process; once."""
    job, followed = Killed(worker, redis_client), list[str]()
    job.definition.decide_outcome = lambda attempt: Outcome(
        "discarded", attempt.payload, afterwards=lambda: followed.append(str(attempt.error))
    )

    assert job.settle()
    assert not job.settle()

    [error] = followed
    assert "longer than its hard_timeout of 5.0 s" in error
    assert redis_client.get("stat:failed") == b"1"


def test_a_killed_job_that_is_to_run_again_goes_back_to_its_queue(redis_client: redis.Redis, worker: Worker) -> None:
    """It has neither failed nor is it lost."""
    job = Killed(worker, redis_client)
    job.definition.decide_outcome = lambda attempt: Outcome("requeue", attempt.payload)

    assert job.settle()
    assert not job.settle()

    assert redis_client.lrange("queue:elsewhere", 0, -1) == [job.raw]
    assert held(redis_client) == {}
    assert redis_client.get("stat:failed") is None
    assert worker.reported == []


def test_the_error_can_be_sent_elsewhere() -> None:
    """With its signal."""
    error = pickle.loads(pickle.dumps(TerminatedError(9)))

    assert error.signal_number == 9
    with pytest.raises(TerminatedError, match="signal 9"):
        raise error
