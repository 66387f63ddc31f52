"""Unique tasks whose workers are killed."""

from collections.abc import Callable
from pathlib import Path

import redis
from sidekiq_celery import Celery
from sidekiq_celery._send.clients import client_of

from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

TASKS = """
import os, time
import redis
from sidekiq_celery import Celery
from sidekiq_celery.worker.registering import register_tasks

URL = os.environ["REDIS_URL"]
app = Celery("proj", broker=URL, backend=URL, fixups=[])
client = redis.Redis.from_url(URL)

@app.task(name="proj.held", bind=True, unique_for=600)
def held(self):
    client.rpush("runs", self.request.id)
    while not client.exists("go on"):
        time.sleep(0.01)

@app.task(name="proj.endless", unique_for=600, time_limit=0.5)
def endless():
    time.sleep(60)

register_tasks(app, has_hard_limits="HARD_LIMITS" in os.environ)
"""


def app_of(url: str, folder: Path) -> Celery:
    """Sends the tasks by name, as a program without their code does."""
    (folder / "unique_tasks.py").write_text(TASKS)
    return Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])


def test_a_job_that_comes_back_still_has_its_lock(
    redis_url: str,
    redis_client: redis.Redis,
    start_worker: Callable[..., WorkerProcess],
    tmp_path: Path,
    holders: Callable[[], list[str]],
) -> None:
    """Its worker was killed while it ran; its end at another one releases the lock."""
    app = app_of(redis_url, tmp_path)
    first = app.send_task("proj.held", unique_for=600)
    victim = start_worker("unique_tasks", arguments=["-c", "1", "-q", "celery"])
    eventually(lambda: redis_client.llen("runs") == 1)

    victim.kill()
    assert app.send_task("proj.held", unique_for=600).id == first.id
    start_worker("unique_tasks", arguments=["-c", "1", "-q", "celery"])
    eventually(lambda: redis_client.llen("runs") == 2)
    assert holders() == [first.id]
    assert app.send_task("proj.held", unique_for=600).id == first.id
    redis_client.set("go on", 1)

    eventually(lambda: holders() == [])
    assert redis_client.lrange("runs", 0, -1) == [first.id.encode()] * 2
    client_of(app).close()


def test_a_task_past_its_time_limit_loses_its_lock(
    redis_url: str,
    redis_client: redis.Redis,
    start_worker: Callable[..., WorkerProcess],
    tmp_path: Path,
    holders: Callable[[], list[str]],
) -> None:
    """Its end is written by a sibling of the process that is killed."""
    app = app_of(redis_url, tmp_path)
    result = app.send_task("proj.endless", unique_for=600)
    assert holders() == [result.id]
    arguments = ["--processes", "2", "-c", "1", "-q", "celery"]
    start_worker("unique_tasks", arguments=arguments, environment={"HARD_LIMITS": "1"})

    eventually(lambda: holders() == [])
    assert redis_client.zcard("dead") == 1
    client_of(app).close()
