"""A child that is started while all stop, to settle a job that is past its hard limit, takes no job itself."""

import signal
from pathlib import Path

import redis

from sidekiq_py import Client
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os, pathlib, time
import sidekiq_py as sidekiq

FOLDER = pathlib.Path(__file__).parent

@sidekiq.job(name="Hang", hard_timeout=3)
def hang():
    (FOLDER / f"started-{os.getpid()}").touch()
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

@hang.retry_in
def decide(count, error, payload):
    while not (FOLDER / "is_decided").exists():
        time.sleep(0.05)
    return 3600
"""


def test_a_child_that_settles_for_another_in_a_stop_takes_no_job_meanwhile(
    redis_client: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """Its job would be past its limit next, and so on: the stop lasted until the queue was empty."""
    (tmp_path / "hanging_jobs.py").write_text(PROGRAM)
    arguments = ["--processes", "1", "-c", "1", "-t", "600"]
    worker = WorkerProcess("hanging_jobs", redis_url=redis_url, arguments=arguments, python_path=[tmp_path])
    with worker:
        first = set(worker.identities())
        Client(redis_url, sidekiq_version="7").push_bulk({"class": "Hang", "args": [[]] * 5})
        eventually(lambda: list(tmp_path.glob("started-*")))

        worker.send_signal(signal.SIGTERM)
        eventually(lambda: set(worker.identities()) - first, within_seconds=60)
        (tmp_path / "is_decided").touch()

        assert worker.wait(60) == 0

    assert len(list(tmp_path.glob("started-*"))) == 1
    assert (redis_client.zcard("retry"), redis_client.llen("queue:default")) == (1, 4)
