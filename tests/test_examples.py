"""The examples run unchanged, against real Redis and, if installed, real Ruby."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.missing_tools import skip_or_fail
from tests.support.real_celery import python_with_celery
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS, SidekiqProcess, WorkerProcess

EXAMPLES = REPOSITORY / "examples"
ENQUEUE_FOR_RUBY, PYTHON_WORKER = EXAMPLES / "enqueue_for_ruby", EXAMPLES / "python_worker"
CELERY_PROJECT, MIGRATED_PROJECT = EXAMPLES / "celery_project", EXAMPLES / "celery_project_migrated"
AN_AFTERNOON = """\
the card: receipt for A-1 over 1999
three more: ['receipt for B-1 over 100', 'receipt for B-2 over 200', 'receipt for B-3 over 300']
a refund: ValueError('nothing was paid for C-1') FAILURE
a late one: receipt for D-1 over 5
mails: ['A-1: thank you (receipt for A-1 over 1999)', 'A-1: your parcel is on its way (3)']
shipped: ['A-1: 2 x tea, 1 x pots, 6 x cups']
failed: ["shop.tasks.refund ['C-1', 0]: nothing was paid for C-1"]
stock: ['counted']
"""

Run = Callable[..., str]


@pytest.fixture
def run(redis_url: str) -> Run:
    """Runs a program in an example's folder, on the shared Redis, and returns its output."""

    def run_here(folder: Path, *command: str) -> str:
        environment = {
            **os.environ,
            "REDIS_URL": redis_url,
            "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run_here


@pytest.fixture
def ruby() -> str:
    """The `ruby` program, if Sidekiq is installed with it."""
    if shutil.which("sidekiq") is None:
        skip_or_fail("no Ruby Sidekiq; on Debian: apt-get install ruby-sidekiq", switch="SIDEKIQ_PY_REQUIRE_RUBY")
    return "ruby"


def test_python_enqueues_for_ruby(run: Run, redis_client: redis.Redis) -> None:
    """The output has the ids of the jobs in Redis; the options are those of the Ruby class."""
    printed = run(ENQUEUE_FOR_RUBY, sys.executable, "enqueue.py")

    queued = [json.loads(raw) for raw in redis_client.lrange("queue:mailers", 0, -1)]
    scheduled = [json.loads(raw) for raw in redis_client.zrange("schedule", 0, -1)]
    assert {job["jid"] for job in [*queued, *scheduled]} == set(re.findall(r"[0-9a-f]{24}", printed))
    assert (len(queued), len(scheduled)) == (3, 1)
    assert {(job["class"], job["retry"]) for job in queued} == {("SendReceipt", 5)}


@pytest.mark.ruby
def test_ruby_runs_what_the_example_enqueued(run: Run, ruby: str, redis_url: str) -> None:
    """In a real Sidekiq process with the example's own class."""
    command = ["sidekiq", "-r", str(ENQUEUE_FOR_RUBY / "jobs.rb"), "-q", "mailers"]

    with SidekiqProcess(command, redis_url=redis_url) as worker:
        run(ENQUEUE_FOR_RUBY, sys.executable, "enqueue.py")

        for order in ("A-1001", "A-1003", "A-1004"):
            assert eventually(lambda order=order: f"receipt for {order} sent" in worker.log)
        worker.kill()


@pytest.mark.ruby
def test_python_runs_what_ruby_enqueued(run: Run, ruby: str, redis_url: str) -> None:
    """At once, after a retry, when due, and on the event loop."""
    with WorkerProcess("fraud", redis_url=redis_url, arguments=["-q", "python"], python_path=[PYTHON_WORKER]) as worker:
        run(PYTHON_WORKER, ruby, "enqueue.rb")

        for done in (
            "order A-1001 over 99.5",
            "order A-1003 over 7.25",
            "the rate of EUR",
            "order A-1002 over 12000.0",
        ):
            assert eventually(lambda done=done: done in worker.log)
        assert "BureauBusyError: the credit bureau is too busy to check A-1002" in worker.log


@pytest.mark.parametrize("project", [CELERY_PROJECT, MIGRATED_PROJECT], ids=lambda path: path.name)
def test_a_celery_project_does_the_same_before_and_after(
    run: Run, redis_url: str, tmp_path: Path, project: Path
) -> None:
    """The output is the same with the real Celery, and with the import and the command changed."""
    is_migrated = project == MIGRATED_PROJECT
    python = sys.executable if is_migrated else python_with_celery()
    command = [python, "-m", "sidekiq_celery" if is_migrated else "celery", "--workdir", str(project), "-A", "shop"]
    roots = {"PYTHONPATH": os.pathsep.join(map(str, (project, *SOURCE_ROOTS))), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = ["worker", "-B", "-s", str(tmp_path / "schedule"), "-l", "INFO", "-Q", "celery,mails"]
    worker = SidekiqProcess([*command, *arguments], redis_url=redis_url, environment=roots)
    worker.start()
    try:
        assert run(project, python, "-m", "shop.afternoon") == AN_AFTERNOON, worker.log_tail()
    finally:
        worker.stop(within_seconds=60)


def test_the_two_projects_differ_by_their_imports_and_the_command() -> None:
    """File by file, line by line."""
    files = {path.relative_to(CELERY_PROJECT) for path in CELERY_PROJECT.rglob("*.py")}
    assert files == {path.relative_to(MIGRATED_PROJECT) for path in MIGRATED_PROJECT.rglob("*.py")}

    for file in files:
        before, after = ((folder / file).read_text().splitlines() for folder in (CELERY_PROJECT, MIGRATED_PROJECT))
        assert [re.sub(r"^from celery\b", "from sidekiq_celery", line) for line in before] == after
    assert "\nsidekiq-celery -A shop worker -B " in (MIGRATED_PROJECT / "README.md").read_text()


def test_the_python_worker_runs_without_ruby_too(run: Run, redis_url: str) -> None:
    """The command line writes what Ruby would write."""
    with WorkerProcess("fraud", redis_url=redis_url, arguments=["-q", "python"], python_path=[PYTHON_WORKER]) as worker:
        run(PYTHON_WORKER, sys.executable, "-m", "sidekiq_py", "push", "FraudCheck", '["A-7", 1.5]', "-q", "python")

        assert eventually(lambda: "order A-7 over 1.5 looks honest" in worker.log)
