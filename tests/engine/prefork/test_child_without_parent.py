"""A child of `--processes N` whose parent was killed stops, but waits for its job."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import redis

from sidekiq_py import Client
from tests.support.in_flight import jobs_in_flight
from tests.support.process_states import children_of, has_ended
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import pathlib, time
import sidekiq_py as sidekiq

@sidekiq.job(name="Hang", hard_timeout=3)
def hang():
    (pathlib.Path(__file__).parent / "started").touch()
    time.sleep(600)
"""


@pytest.fixture
def worker(tmp_path: Path, redis_url: str) -> Iterator[WorkerProcess]:
    """A worker with one child, whose stop waits for ten minutes."""
    (tmp_path / "hanging_jobs.py").write_text(PROGRAM)
    worker = WorkerProcess(
        "hanging_jobs",
        redis_url=redis_url,
        arguments=["--processes", "1", "-c", "1", "-t", "600"],
        python_path=[tmp_path],
    )
    with worker:
        yield worker


@pytest.fixture
def child(worker: WorkerProcess, tmp_path: Path, redis_url: str) -> int:
    """The worker's child. It runs a job that does not end, and its parent was killed."""
    [child] = children_of(worker.pid)
    Client(redis_url, sidekiq_version="7").push({"class": "Hang", "args": []})
    eventually((tmp_path / "started").exists)
    worker.kill()
    return child


def test_a_hard_limit_holds_without_the_parent(worker: WorkerProcess, child: int, redis_client: redis.Redis) -> None:
    """The child settles its job as failed and ends itself; its stop would wait for ten minutes."""
    eventually(lambda: has_ended(child), within_seconds=60)
    assert "past its hard limit, and the parent process is gone" in worker.log
    [failed] = [json.loads(entry) for entry in redis_client.zrange("retry", 0, -1)]
    assert failed["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
    assert jobs_in_flight(redis_client) == []


def test_a_child_without_parent_tries_once_a_second_to_settle_its_job(
    worker: WorkerProcess, child: int, redis_client: redis.Redis
) -> None:
    """Each try that Redis refuses goes to the error handlers. Once Redis accepts writes again, the job is settled."""
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        eventually(lambda: worker.log.count("could not be settled") > 3, within_seconds=60)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    eventually(lambda: has_ended(child), within_seconds=60)
    tries = [datetime.fromisoformat(at) for at in re.findall(r"(\S+)Z .*could not be settled", worker.log)]
    # A line may be written late, but only the first one's delay makes all of them look closer than the tries were.
    assert (tries[-1] - tries[0]).total_seconds() > len(tries) - 2
    assert redis_client.zcard("retry") == 1


def test_a_hard_limit_holds_without_the_parent_for_a_job_that_redis_has_lost(
    child: int, redis_client: redis.Redis
) -> None:
    """The job is not in flight any more, so there is nothing to settle; another worker may run it, too."""
    redis_client.flushdb()

    eventually(lambda: has_ended(child), within_seconds=60)
