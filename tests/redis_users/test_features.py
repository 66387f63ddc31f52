"""Batches, status, periodic jobs and the dashboard, each by the user that the manual gives it."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs, JobStatus
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.registry import registry
from sidekiq_py.web import User, asgi_app
from tests.redis_users.test_python_programs import PATIENCE_SECONDS, Confined, confined
from tests.support.redis_users import rights_on_top
from tests.support.waiting import eventually
from tests.web.browsing import Visitor

__all__ = ("confined",)

PROGRAM = """
import sidekiq_py as sidekiq

@sidekiq.job(name="Watched", status=True)
def watched():
    sidekiq.current_job().progress(at=1, total=2, message="half")

@sidekiq.job(name="Ended")
def ended(bid, event, options): ...
"""
NEEDS_MORE = {
    "status": lambda job: job.perform_async(),
    "statuses": lambda job: job.perform_bulk([[]] * 3),
    "awaited": lambda job: asyncio.run(job.aperform_async()),
    "batch": lambda job: sidekiq.Batch().jobs().__enter__(),
}
NOTE, FAIL = sidekiq.ruby_job("Note"), sidekiq.ruby_job("Fail", retry=0)


@pytest.mark.parametrize("push", NEEDS_MORE.values(), ids=NEEDS_MORE)
def test_a_push_that_needs_more_rights_says_where_to_find_them(confined: Confined, push: Callable[[Any], Any]) -> None:
    """A user that may push plain jobs may not run the scripts of other pushes."""
    confined.program("enqueue")
    job = sidekiq.job(name="Watched", status=True)(lambda: None)
    try:
        with pytest.raises(RedisReplyError, match=r"user lacks a right that the push needs.*docs/redis\.md") as refused:
            push(job)
    finally:
        registry.remove("Watched")
        confined.users.admin.execute_command("ACL", "LOG", "RESET")

    assert refused.value.code == "NOPERM"


@pytest.mark.parametrize("track", [False, True])
def test_batches(confined: Confined, tmp_path: Path, *, track: bool) -> None:
    """Opened by who enqueues, run by a worker, seen and steered by an operator."""
    workers, clients = rights_on_top("Workers that run jobs of [batches]"), rights_on_top("Programs that open batches")
    tracked = rights_on_top("[Tracked batches]") if track else []
    confined.users.give("worker", [*workers, *tracked])
    confined.users.give("enqueue", [*clients, *tracked])
    confined.users.give("operator", tracked)
    confined.program("enqueue")
    batch = sidekiq.Batch(description="users", track=track)
    batch.on("complete", "Ended")
    with batch.jobs():
        NOTE.perform_async("member")
        # Those behind the first slice go by transactions.
        NOTE.perform_bulk([["of many"]] * 250, batch_size=100)
        FAIL.perform_async("no")
    (tmp_path / "more_jobs.py").write_text(PROGRAM)
    confined.start_worker(also=[str(tmp_path / "more_jobs.py")])

    eventually(lambda: confined.has_noted("member"), within_seconds=PATIENCE_SECONDS)
    eventually(lambda: batch.status().state == "complete", within_seconds=PATIENCE_SECONDS)
    assert batch.status().as_dict()["dead"] == 1
    assert json.loads(confined.command("batches", "show", batch.bid, "--json"))["pending"] == 1
    assert confined.command("batches", "list")
    assert confined.command("batches", "retry", batch.bid)
    assert confined.command("batches", "invalidate", batch.bid, "--yes")
    assert confined.command("batches", "delete", batch.bid, "--yes")


@pytest.mark.parametrize("may", [True, False])
def test_jobs_of_sidekiq_batch(confined: Confined, *, may: bool) -> None:
    """Counted where the worker has the rights, and left to Ruby where it has not."""
    if may:
        confined.users.give("worker", rights_on_top("Workers that run jobs of the gem [sidekiq-batch]"))
    confined.client.hset("BID-oB3mHqXDfWNqEA", mapping={"pending": 2, "total": 2})
    job = {"class": "Note", "args": ["member"], "jid": "f" * 24, "queue": "default", "bid": "oB3mHqXDfWNqEA"}
    confined.client.lpush("queue:default", json.dumps(job))

    worker = confined.start_worker()

    if may:
        eventually(lambda: confined.client.hget("BID-oB3mHqXDfWNqEA", "pending") == b"1", PATIENCE_SECONDS)
    else:
        eventually(lambda: "no longer serves default" in worker.log, PATIENCE_SECONDS)
        confined.client.execute_command("ACL", "LOG", "RESET")


def test_status(confined: Confined, tmp_path: Path) -> None:
    """Written by who enqueues and by a worker, read and stopped by an operator."""
    page = (Path(__file__).parents[2] / "docs" / "progress.md").read_text()
    rights = page.partition("needs these rights in addition")[2].partition("`")[2].partition("`")[0].split()
    for name in ("worker", "enqueue"):
        confined.users.give(name, rights)
    confined.users.give("operator", [word for word in rights if word[0] != "~"])
    (tmp_path / "watched_jobs.py").write_text(PROGRAM)
    confined.program("enqueue")
    worker = confined.start_worker(also=[str(tmp_path / "watched_jobs.py")])
    jid = sidekiq.job(name="Watched", status=True)(lambda: None).perform_async()

    eventually(lambda: confined.client.hget(f"sidekiq:status:{jid}", "status") == b"complete", within_seconds=60)
    confined.program("operator")
    found = JobStatus.find(jid)
    assert found is not None
    assert found.message == "half"
    assert worker.is_running


def test_a_job_runs_though_its_worker_may_not_write_its_status(confined: Confined, tmp_path: Path) -> None:
    """Pushed by a program that has the rights, run by a worker that was never given them."""
    (tmp_path / "watched_jobs.py").write_text(PROGRAM)
    jid = "d" * 24
    confined.client.hset(f"sidekiq:status:{jid}", "status", "queued")
    job = {"class": "Watched", "args": [], "jid": jid, "queue": "default", "retry": True, "status": True}
    confined.client.lpush("queue:default", json.dumps(job))

    worker = confined.start_worker(also=[str(tmp_path / "watched_jobs.py")])

    eventually(lambda: confined.client.get("stat:processed") == b"1", within_seconds=PATIENCE_SECONDS)
    assert confined.client.get("stat:failed") is None
    assert confined.client.hget(f"sidekiq:status:{jid}", "status") == b"queued"
    assert worker.log.count("the status of jobs cannot be written") == 1
    confined.client.execute_command("ACL", "LOG", "RESET")


def test_periodic_jobs(confined: Confined) -> None:
    """Added and steered by an operator, pushed by a worker, also in a namespace that nobody has named."""
    assert confined.command("cron", "add", "often", "* * * * * *", "Note", '["tick"]')
    confined.program("operator")
    CronJobs().add("* * * * * *", NOTE, name="mailed", args=["mail"], namespace="mails")
    confined.start_worker()

    for text in ("tick", "mail"):
        eventually(lambda text=text: confined.has_noted(text), within_seconds=PATIENCE_SECONDS)

    assert confined.command("cron", "list")
    assert confined.command("cron", "show", "often")
    assert confined.command("cron", "history", "often")
    assert confined.command("cron", "disable", "often", "--reason", "enough")
    assert confined.command("cron", "enable", "often")
    assert confined.command("cron", "run", "often")
    assert confined.command("cron", "remove", "often", "--yes")


@pytest.mark.parametrize("name", ["operator", "viewer"])
def test_the_dashboard(confined: Confined, name: str) -> None:
    """Every page, with a job in each set; actions by an operator."""
    confined.start_worker("-q", "nothing-here")
    confined.command("push", "Note", '["waits"]')
    confined.command("push", "Note", '["later"]', "--in", "1h")
    confined.command("cron", "add", "rarely", "0 5 1 1 *", "Note", '["rarely"]')
    for key in ("retry", "dead"):
        confined.client.zadd(key, {json.dumps({"class": "Note", "args": [], "jid": key, "queue": "default"}): 4e9})
    with confined.viewer():
        statuses = look_at_every_page(confined, name)

    assert set(statuses.values()) == {200}, statuses


def look_at_every_page(confined: Confined, name: str) -> dict[str, int]:
    """The statuses of the dashboard's pages for a user of Redis."""
    confined.program(name)
    somebody = Visitor(asgi_app(authorize=lambda _request: User("ada", "operator", True)))
    paths = (
        "",
        "busy",
        "queues",
        "queue?name=default",
        "retries",
        "scheduled",
        "dead",
        "metrics",
        "cron",
        "batches",
    )

    statuses = {path: somebody.get(f"/{path}").status for path in (*paths, "audit", "bulk")}
    # A page starts the doctor in a thread, which must not outlive the user.
    eventually(lambda: "sidekiq.web/doctor" not in {thread.name for thread in threading.enumerate()})
    return statuses
