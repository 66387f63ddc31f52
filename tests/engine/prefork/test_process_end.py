"""A worker that has stopped is gone, whatever jobs of long ago have left behind."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from tests.support.process_states import has_ended
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

JOBS = """
import asyncio, atexit, concurrent.futures, multiprocessing, os, pathlib, threading, time
import sidekiq_py as sidekiq

here = pathlib.Path(__file__).parent

@atexit.register
def say_goodbye():
    (here / "goodbye").write_text(f"{os.getpid()}")

def fork(**options):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), **options)
    child.start()
    (here / "left").write_text(f"{child.pid}")

@sidekiq.job(name="Executor")
def leave_a_thread_of_an_executor():
    concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 600)

@sidekiq.job(name="Thread")
def leave_a_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()

@sidekiq.job(name="AsyncExecutor")
async def leave_a_thread_of_the_loop():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)

@sidekiq.job(name="CutOff")
async def is_cut_off():
    await asyncio.to_thread(time.sleep, 600)

@sidekiq.job(name="Stubborn")
def does_not_hear_of_the_stop():
    time.sleep(600)

@sidekiq.job(name="StubbornHandler")
def does_not_hear_of_the_stop_and_leaves_a_handler():
    atexit.register(time.sleep, 600)
    time.sleep(600)

@sidekiq.job(name="Process")
def leave_a_process():
    fork()

@sidekiq.job(name="Daemon")
def leave_a_daemon():
    fork(daemon=True)

pool = concurrent.futures.ProcessPoolExecutor(2)

@sidekiq.job(name="Pool")
def leave_a_pool():
    list(pool.map(time.sleep, [0.1, 0.1]))
    leave_the_pool()

@sidekiq.job(name="BusyPool")
def leave_a_pool_that_is_busy():
    pool.submit(time.sleep, 600)
    leave_the_pool()

def leave_the_pool():
    (here / "left").write_text(" ".join(map(str, pool._processes)))

@sidekiq.job(name="Handler")
def leave_a_handler():
    atexit.register(time.sleep, 600)
"""


NEVER_END = ("CutOff", "Stubborn", "StubbornHandler")


@pytest.fixture
def run(start_worker: StartWorker, redis_url: str, tmp_path: Path) -> Callable[..., None]:
    """`run(job, *arguments)`: a worker runs the job, is told to stop, and ends with 0 before what was left does."""
    (tmp_path / "leaving_jobs.py").write_text(JOBS)
    client = Client(redis_url, sidekiq_version="7")

    def run_and_stop(job: str, *arguments: str) -> None:
        worker = start_worker("leaving_jobs", arguments=["-t", "0.2", *arguments])
        client.push({"class": job, "args": []})
        eventually(lambda: ("INFO: start" if job in NEVER_END else "INFO: done") in worker.log)

        worker.send_signal(signal.SIGTERM)

        assert worker.wait(60) == 0

    return run_and_stop


@pytest.mark.parametrize("job", ["Executor", "Thread", "AsyncExecutor", "CutOff"])
def test_it_waits_for_no_thread(run: Callable[..., None], job: str, tmp_path: Path) -> None:
    """And calls the program's exit handlers."""
    run(job)

    assert (tmp_path / "goodbye").exists()


@pytest.mark.parametrize("arguments", [(), ("--processes", "1"), ("--processes", "1", "-c", "1")])
def test_a_job_that_does_not_stop_does_not_keep_the_exit_handlers_from_running(
    run: Callable[..., None], redis_client: redis.Redis, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """They send what the program has collected, such as spans and reports of errors. The job goes back to its queue."""
    run("Stubborn", *arguments)

    assert (tmp_path / "goodbye").exists()
    assert redis_client.llen("queue:default") == 1


def test_an_exit_handler_that_hangs_does_not_keep_a_job_that_does_not_stop(
    run: Callable[..., None], redis_client: redis.Redis
) -> None:
    """The job goes back to its queue all the same."""
    run("StubbornHandler")

    assert redis_client.llen("queue:default") == 1


@pytest.mark.parametrize("arguments", [(), ("--processes", "1")])
def test_it_waits_for_no_process(run: Callable[..., None], tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """One that is no daemon is left to its own devices."""
    run("Process", *arguments)

    left = int((tmp_path / "left").read_text())
    os.kill(left, signal.SIGKILL)
    assert (tmp_path / "goodbye").exists()


def test_it_ends_daemons(run: Callable[..., None], tmp_path: Path) -> None:
    """As Python does."""
    run("Daemon")

    eventually(lambda: has_ended(int((tmp_path / "left").read_text())))


@pytest.mark.parametrize("arguments", [(), ("--processes", "1")])
@pytest.mark.parametrize("job", ["Pool", "BusyPool"])
def test_it_ends_process_pools(run: Callable[..., None], tmp_path: Path, job: str, arguments: tuple[str, ...]) -> None:
    """As Python does, except that it does not wait for one that is busy."""
    run(job, *arguments)

    left = (tmp_path / "left").read_text().split()
    assert left
    eventually(lambda: all(has_ended(int(pid)) for pid in left))
    assert (tmp_path / "goodbye").exists()


def test_an_exit_handler_that_hangs_does_not_keep_it(run: Callable[..., None]) -> None:
    """They have a few seconds, all together."""
    run("Handler")
