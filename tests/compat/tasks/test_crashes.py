"""Workers that are killed: each task ends once, and what its end sets off comes once."""

import json
import time
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
from sidekiq_celery import Celery, Task, signals
from sidekiq_celery.worker.registering import register_tasks

URL = os.environ["REDIS_URL"]
app = Celery("proj", broker=URL, backend=URL, fixups=[])
client = redis.Redis.from_url(URL)

@app.task(name="proj.work")
def work(number):
    client.hincrby("runs", number, 1)
    time.sleep(0.01)
    return number

@app.task(name="proj.called", bind=True, ignore_result=True)
def called(self, number):
    client.sadd(f"called:{number}", self.request.id)

@app.task(name="proj.deadly")
def deadly():
    client.incr("deadly")
    os.kill(os.getpid(), 9)

@app.task(name="proj.told")
def told(task_id):
    client.set("told", task_id)

class Noting(Task):
    def on_failure(self, exc, task_id, args, kwargs, einfo):
        client.rpush("hooks", f"on_failure {type(exc).__name__} {task_id == self.request.id} {args} {kwargs}")

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        client.rpush("hooks", f"after_return {status} {type(retval).__name__} {task_id == self.request.id}")

@app.task(name="proj.endless", base=Noting, time_limit=0.5)
def endless(number):
    client.incr("endless")
    time.sleep(60)

@signals.task_failure.connect
def failed(sender, task_id, **about):
    client.rpush("signal", f"{sender.name} {sender.request.id == task_id}")

register_tasks(app, has_hard_limits="HARD_LIMITS" in os.environ)
"""


def start_unready(url: str, folder: Path) -> WorkerProcess:
    """One that may die before it is ready."""
    (folder / "crash_tasks.py").write_text(TASKS)
    return WorkerProcess("crash_tasks", redis_url=url, arguments=["-q", "celery"], python_path=[folder]).start()


def start(start_worker: Callable[..., WorkerProcess], folder: Path) -> WorkerProcess:
    """A worker with these tasks."""
    (folder / "crash_tasks.py").write_text(TASKS)
    return start_worker("crash_tasks", arguments=["-c", "4", "-q", "celery"])


def test_a_task_ends_once_whatever_is_killed(
    redis_url: str, redis_client: redis.Redis, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Result, callback and acknowledgement are one step: a task may run again, its callback is enqueued once."""
    tasks = 300
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    called = app.signature("proj.called")
    ids = [app.send_task("proj.work", (number,), link=called).id for number in range(tasks)]

    for _ in range(4):
        worker = start(start_worker, tmp_path)
        before = redis_client.hlen("runs")
        eventually(lambda before=before: redis_client.hlen("runs") >= min(before + 30, tasks))
        worker.kill()
    start(start_worker, tmp_path)
    eventually(lambda: len(redis_client.keys("called:*")) == tasks)
    eventually(lambda: redis_client.llen("queue:celery") == 0)

    results = [json.loads(redis_client.get(f"celery-task-meta-{one}") or b"{}") for one in ids]
    assert [result["result"] for result in results] == list(range(tasks))
    assert [redis_client.scard(f"called:{number}") for number in range(tasks)] == [1] * tasks
    client_of(app).close()


def test_a_task_that_kills_its_worker_fails_at_the_fourth_death(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """The first makes it a suspect, three more end it: then its failure is stored and its errbacks are called."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    result = app.send_task("proj.deadly", link_error=app.signature("proj.told"))

    give_up_at = time.monotonic() + 60
    while not redis_client.exists("told") and time.monotonic() < give_up_at:
        worker = start_unready(redis_url, tmp_path)
        eventually(lambda worker=worker: not worker.is_running or redis_client.exists("told"))
        worker.leave()

    assert redis_client.get("deadly") == b"4"
    assert redis_client.get("told") == result.id.encode()
    meta = json.loads(redis_client.get(f"celery-task-meta-{result.id}") or b"{}")
    assert (meta["status"], meta["result"]["exc_type"]) == ("FAILURE", "WorkerLostError")
    assert redis_client.zcard("dead") == 1
    assert redis_client.lrange("signal", 0, -1) == [b"proj.deadly True"]
    client_of(app).close()


def test_a_task_past_its_time_limit_fails_and_its_process_is_killed(
    redis_url: str, redis_client: redis.Redis, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Its result and hooks say so, as in Celery; it is kept, not run again; and other tasks go on."""
    (tmp_path / "crash_tasks.py").write_text(TASKS)
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    # Two children: the one that goes on settles the job of the one that is killed.
    arguments = ["--processes", "2", "-c", "1", "-q", "celery"]
    start_worker("crash_tasks", arguments=arguments, environment={"HARD_LIMITS": "1"})

    late = app.send_task("proj.endless", (1,), link_error=app.signature("proj.told"))
    fine = app.send_task("proj.work", (7,))

    eventually(lambda: redis_client.get("told") == late.id.encode())
    meta = json.loads(redis_client.get(f"celery-task-meta-{late.id}") or b"{}")
    assert (meta["status"], meta["result"]["exc_type"], meta["traceback"]) == ("FAILURE", "TimeLimitExceeded", None)
    assert redis_client.get("endless") == b"1"
    assert redis_client.lrange("hooks", 0, -1) == [
        b"on_failure TimeLimitExceeded True [1] {}",
        b"after_return FAILURE TimeLimitExceeded True",
    ]
    assert redis_client.lrange("signal", 0, -1) == [b"proj.endless True"]
    assert redis_client.zcard("dead") == 1
    eventually(lambda: redis_client.exists(f"celery-task-meta-{fine.id}"))
    client_of(app).close()
