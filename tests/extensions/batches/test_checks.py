"""What the doctor says of batches, and the type checker of callbacks."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches import ruby_processes
from sidekiq_py.extensions.batches.checks import batches
from tests.extensions.batches.conftest import Program
from tests.support.worker_process import REPOSITORY

PROGRAM = """\
import sidekiq_py as sidekiq

@sidekiq.job
def done(bid: str, event: str, options: dict[str, int]) -> None: ...

@sidekiq.job(name="other")
async def other(bid: str, event: str, options: None) -> None: ...

@sidekiq.job(name="row")
def row(number: int) -> None: ...

batch = sidekiq.Batch(description="Import")
batch.on("success", done, {"id": 42}).on("complete", other).on("death", "Ruby::Done#on_death")
batch.on("success", sidekiq.ruby_job("Ruby::Done"), 5)
batch.on("success", done, {"id": "42"})  # wrong
batch.on("success", row, 42)  # wrong
batch.on("sucess", done, {"id": 42})  # wrong
sidekiq.Batch(descripton="Import")  # wrong
with batch.jobs():
    row.perform_async(1)
share: float = batch.status().progress
"""


def test_a_wrong_callback_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    """Of the options' type, of the parameters, of the event."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path), "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )

    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    errors = [line for line in ran.stdout.splitlines() if line.startswith("program.py") and "error" in line]
    told = {int(line.split(":")[1]) for line in errors}
    assert told == wrong, ran.stdout


def test_a_batch_that_cannot_end_is_named(app: Program) -> None:
    """Open, with lost members, or run by Ruby processes that do not count."""
    pool = sync_client.current().pool
    assert list(batches(pool)) == []
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        [opened, *_] = batches(pool)
    [fine] = batches(pool)
    identity = "ruby:1:0123456789ab"
    info = {"hostname": "ruby", "pid": 1, "queues": ["mailers"], "labels": [], "version": "7.3.2", "tag": ""}
    app.client.sadd("processes", identity)
    app.client.hset(identity, mapping={"info": json.dumps(info), "busy": 0, "beat": time.time(), "quiet": "false"})
    app.client.hset(f"sidekiq_py:batch:{batch.bid}", "n:lost", 2)

    bare, lost = batches(pool)

    assert opened.subjects == (batch.bid,)
    assert "1 batch can end" in fine.seen
    assert "mailers" in bare.seen
    assert bare.subjects == (identity,)
    assert "2 jobs of 1 batch are lost" in lost.seen
    assert batch.bid in opened.seen
    assert batch.bid in lost.seen


def test_opening_a_batch_names_ruby_processes_that_do_not_count(
    app: Program, caplog: pytest.LogCaptureFixture, redis_url: str
) -> None:
    """Once for a Redis."""
    ruby_processes._looked.discard(redis_url)
    info = {"hostname": "ruby", "pid": 1, "queues": ["mailers"], "labels": [], "version": "7.3.2", "tag": ""}
    app.client.sadd("processes", "ruby:1:0123456789ab")
    app.client.hset("ruby:1:0123456789ab", mapping={"info": json.dumps(info), "busy": 0, "beat": time.time()})

    for _ in range(2):
        with sidekiq.Batch().jobs():
            pass

    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the Ruby process ruby"]
    assert "mailers" in caplog.text
