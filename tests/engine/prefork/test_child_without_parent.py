"""A child of `--processes N` whose parent was killed stops, but waits for its job."""

import json
from pathlib import Path

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


def test_a_hard_limit_holds_without_the_parent(tmp_path: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """The child settles its job as failed and ends itself; its stop would wait for ten minutes."""
    (tmp_path / "hanging_jobs.py").write_text(PROGRAM)
    worker = WorkerProcess(
        "hanging_jobs",
        redis_url=redis_url,
        arguments=["--processes", "1", "-c", "1", "-t", "600"],
        python_path=[tmp_path],
    )
    with worker:
        [child] = children_of(worker.pid)
        Client(redis_url, sidekiq_version="7").push({"class": "Hang", "args": []})
        eventually((tmp_path / "started").exists)

        worker.kill()

        eventually(lambda: has_ended(child), within_seconds=60)
        assert "past its hard limit, and the parent process is gone" in worker.log
        [failed] = [json.loads(entry) for entry in redis_client.zrange("retry", 0, -1)]
        assert failed["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
        assert jobs_in_flight(redis_client) == []
