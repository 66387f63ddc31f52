"""The real Celery on our transport: its clients and workers, ours and Ruby's at the other end."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery

from sidekiq_py.client.sync_client import Client
from tests.compat.tasks.worker import TaskWorker
from tests.compat.transport.celery_side import celery_worker, run_client
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.redis_users import TAKEN_FOR_AN_ANSWER
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

EXPECTED = {
    "call": 3,
    "chain": 15,
    "chord": 90,
    "retries": 2,
    "countdown": 7,
    "compressed": "ab",
    "ping": [{"ok": "pong"}],
}


def result_of(client: redis.Redis, task_id: str) -> Any:
    """What a worker has stored for a call, once it has succeeded."""
    stored = json.loads(client.get(f"celery-task-meta-{task_id}") or b"{}")
    return stored.get("result") if stored.get("status") == "SUCCESS" else None


def words_in_shell(snippet: str, folder: Path) -> list[str]:
    """What `redis-cli` is given by a snippet of the documentation, as a shell reads it."""
    program = folder / "redis-cli"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["sh", "-ec", snippet], capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    return run.stdout.splitlines()


def pushed(url: str, name: str, *args: Any) -> str:
    """Push a job as a program of ours or Ruby's does; its jid."""
    client = Client(url, sidekiq_version="6.4.1")
    jid = client.push({"class": name, "args": list(args), "queue": "celery"})
    client.close()
    assert jid is not None
    return jid


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_program_of_celery_runs_unchanged(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path, pool: str
) -> None:
    """Calls, workflows, retries, times and remote control, with each pool; a warm stop leaves nothing behind."""
    with celery_worker(redis_url, tmp_path / "log", "-P", pool, "-c", "2") as worker:
        assert json.loads(run_client(redis_url, "celery_client.py")) == EXPECTED

        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0

    assert redis_client.smembers("queues") == {b"celery"}
    assert not redis_client.exists("sidekiq_py:owners", "unacked", "celery", "dead", "retry", "schedule")


def test_jobs_of_other_programs_are_run_or_kept(redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    """As Ruby enqueues them. What no task is called, Celery discards; here it is kept for somebody who knows it."""
    pushed(redis_url, "Ruby::Only", 1)
    jid = pushed(redis_url, "HardWorker", "bob", {"n": 5})

    with celery_worker(redis_url, tmp_path / "log", "-P", "solo"):
        assert eventually(lambda: result_of(redis_client, jid)) == ["bob", {"n": 5}]
        eventually(lambda: redis_client.zcard("dead") == 1)

    [dead] = redis_client.zrange("dead", 0, -1)
    assert json.loads(dead)["class"] == "Ruby::Only"


def test_our_workers_run_what_celery_sends(redis_url: str) -> None:
    """A project moves over worker by worker."""
    app = Celery("project", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])

    @app.task(name="project.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="project.total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name="project.flaky", bind=True, max_retries=3)
    def flaky(self: Any, failures: int) -> int:
        if self.request.retries < failures:
            raise self.retry(countdown=0.2)
        return int(self.request.retries)

    worker = TaskWorker(app, redis_url)
    worker.start()
    try:
        seen = json.loads(run_client(redis_url, "celery_client.py", WITHOUT_CONTROL="1"))
    finally:
        worker.stop()
        app.close()

    assert seen == {**EXPECTED, "ping": []}


def test_a_killed_worker_loses_nothing(redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    """With late acknowledgements a task that ran when the worker and its children died runs again elsewhere."""
    jids = [pushed(redis_url, "project.hold", f"runs:{number}") for number in range(4)]
    with celery_worker(redis_url, tmp_path / "first", "-c", "2", ACKS_LATE="1") as worker:
        eventually(lambda: sum(redis_client.llen(f"runs:{number}") for number in range(4)) == 2)
        worker.kill_all()

    for number in range(4):
        redis_client.lpush(f"runs:{number}", "before")
    with celery_worker(redis_url, tmp_path / "second", "-c", "2", ACKS_LATE="1"):
        assert all(eventually(lambda jid=jid: result_of(redis_client, jid)) for jid in jids)
        eventually(lambda: jobs_in_flight(redis_client) == [])


def test_a_worker_goes_on_after_redis_has_been_away(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """It neither stops nor stands still."""
    server = new_redis_server(appendonly=True)
    client = server.client()
    with celery_worker(server.url, tmp_path / "log", "-P", "threads", "-c", "2", ACKS_LATE="1"):
        jid = pushed(server.url, "HardWorker", 1)
        eventually(lambda: result_of(client, jid))

        for _ in range(2):
            server.restart(kill=True)
            after = pushed(server.url, "HardWorker", 2)
            eventually(lambda after=after: result_of(client, after))
    client.close()


def test_a_user_with_few_rights(new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    """The rights that the documentation lists are enough for workers, clients and remote control."""
    server = new_redis_server()
    page = (REPOSITORY / "docs" / "kombu_transport.md").read_text()
    words = words_in_shell(
        page.partition("## A user with few rights")[2].partition("```sh\n")[2].partition("```")[0], tmp_path
    )
    assert words[:3] == ["ACL", "SETUSER", "celery"]
    with server.client(decode_responses=True) as client:
        client.execute_command("ACL", "SETUSER", "celery", "reset", *words[3:])
        client.execute_command("ACL", "LOG", "RESET")
        as_user = {"BROKER": server.url.replace("redis://", "sidekiq://celery:a-password@")}

        with celery_worker(server.url, tmp_path / "log", "-P", "solo", **as_user):
            assert json.loads(run_client(server.url, "celery_client.py", **as_user)) == EXPECTED

        refused = [(entry["reason"], entry["object"], entry["context"]) for entry in client.acl_log()]
    assert [entry for entry in refused if entry[1].lower() not in TAKEN_FOR_AN_ANSWER] == []
