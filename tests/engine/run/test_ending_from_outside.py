"""Jobs that are ended from outside while they run."""

import asyncio
import pickle
import threading

import pytest
import redis

from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.interrupts import Guard
from sidekiq_py.errors import TerminatedError
from tests.engine.fetch.test_beside_the_job import Worker, worker
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually

__all__ = ("worker",)


def unit() -> UnitOfWork:
    """Some job."""
    return UnitOfWork(b"{}", "default", None, b"1.0:default", False, 0.0)


def test_only_a_job_that_is_performed_is_terminated() -> None:
    """One that has ended is not: its thread has another by now."""
    guard, ended, running = Guard(), unit(), unit()
    told: list[UnitOfWork] = []
    guard.performing = running

    assert not guard.terminate(ended, lambda: told.append(ended))
    assert guard.terminate(running, lambda: told.append(running))
    assert told == [running]
    assert guard.is_terminated


def test_a_job_cannot_end_while_it_is_terminated() -> None:
    """Its thread waits for whoever tells the parent, so that its last word comes behind that."""
    guard, running = Guard(), unit()
    guard.performing = running
    said: list[str] = []
    is_telling = threading.Event()

    def end() -> None:
        is_telling.wait()
        guard.performing = None
        if guard.is_requested:
            guard.absorb()
        said.append("end")

    thread = threading.Thread(target=end)
    thread.start()

    def tell() -> None:
        is_telling.set()
        thread.join(timeout=0.05)
        said.append("terminate")

    assert guard.terminate(running, tell)
    thread.join()
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


def test_the_error_can_be_sent_elsewhere() -> None:
    """With its signal."""
    error = pickle.loads(pickle.dumps(TerminatedError(9)))

    assert error.signal_number == 9
    with pytest.raises(TerminatedError, match="signal 9"):
        raise error
