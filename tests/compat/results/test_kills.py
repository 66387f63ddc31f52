"""A worker that dies around the step that ends a job: its result and its acknowledgement are one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from sidekiq_celery import Celery

from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.kill

TASKS = """
import os
from sidekiq_celery import Celery
from sidekiq_celery.worker.registering import register_tasks
from tests.support.kill_worker import REQUESTS, Countdown, around_request

URL = os.environ["REDIS_URL"]
app = Celery("proj", broker=URL, backend=URL, fixups=[])

@app.task(name="proj.work", bind=True)
def work(self):
    return self.backend.client.incr("runs")

register_tasks(app)
if "MOMENT" in os.environ:
    around_request(REQUESTS["settle"], os.environ["MOMENT"], Countdown(int(os.environ["NTH"])))
"""


def worker(url: str, folder: Path, **environment: str) -> WorkerProcess:
    """Not waited for: it may die before it is ready."""
    (folder / "kill_tasks.py").write_text(TASKS)
    return WorkerProcess(
        "kill_tasks",
        redis_url=url,
        arguments=["-q", "celery"],
        python_path=[folder, Path(__file__).parents[3]],
        environment=environment,
    ).start()


def seen(redis_client: redis.Redis, task_id: str) -> tuple[bytes | None, bool]:
    """What is stored of a task, and whether its job is in some worker's hands or its queue; both at one time."""
    with redis_client.pipeline(transaction=True) as look:
        look.get(f"celery-task-meta-{task_id}").keys("sidekiq_py:in[fb]*:*").llen("queue:celery")
        stored, in_hands, in_queue = look.execute()
    return stored, bool(in_hands or in_queue)


@pytest.mark.parametrize("moment", ["before", "sent", "read"])
def test_a_result_is_there_just_when_its_job_is_gone(
    make_app: Callable[..., Celery], redis_url: str, redis_client: redis.Redis, tmp_path: Path, moment: str
) -> None:
    """Whenever the worker dies: both, or neither and the job runs again; the result that is there stays."""
    result = make_app().send_task("proj.work")

    dying = worker(redis_url, tmp_path, MOMENT=moment, NTH="1")
    eventually(lambda: not dying.is_running, within_seconds=60)
    dying.leave()
    stored, is_there = seen(redis_client, result.id)
    assert (stored is None) == is_there
    assert moment != "before" or stored is None
    assert moment != "read" or stored is not None

    living = worker(redis_url, tmp_path)
    eventually(lambda: not seen(redis_client, result.id)[1], within_seconds=60)
    living.leave()
    after, _ = seen(redis_client, result.id)
    assert stored in (None, after)
    assert json.loads(after or b"{}")["result"] == int(redis_client.get("runs") or 0)
