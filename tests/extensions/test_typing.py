"""What extensions add has types: a wrong use of it is an error of mypy and of pyright."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.type_checking import lines_with_errors, mypy
from tests.support.worker_process import REPOSITORY

PROGRAM = """\
from datetime import datetime, timedelta

import sidekiq_py as sidekiq
from sidekiq_py.api import Batches, CronJob, CronJobs, JobStatus

@sidekiq.job
def row(number: int) -> None:
    job = sidekiq.current_job()
    assert job is not None
    job.progress(at=number, total=10, message="x", mine="y")
    job.progress(at="half")  # wrong
    batch = job.batch
    batch.jobs()  # wrong
    if batch is not None and job.is_valid:
        with batch.jobs():
            row.perform_async(number + 1)
            row.perform_async("next")  # wrong

@sidekiq.job
async def awaited(number: int) -> None:
    job = sidekiq.current_job()
    assert job is not None
    await job.aprogress(at=number)
    await job.aprogress(message=5)  # wrong

@sidekiq.job
def done(bid: str, event: str, options: dict[str, int]) -> None: ...

@sidekiq.job
def short(bid: str) -> None: ...

class Done(sidekiq.Job):
    def perform(self, bid: str, event: str, options: dict[str, int]) -> None: ...

class Awaited(sidekiq.Job):
    async def perform(self, bid: str, event: str, options: None) -> None: ...

class Row(sidekiq.Job):
    def perform(self, number: int) -> None: ...

batch = sidekiq.Batch(description="x", track=True, expires_in=timedelta(days=1))
sidekiq.Batch(desc="x")  # wrong
batch.on("success", done, {"import_id": 42}).on("death", "Billing::Failed#on_death", [1])
batch.on("succes", done, {"import_id": 42})  # wrong
batch.on("success", done, {"import_id": "x"})  # wrong
batch.on("success", short, {"import_id": 42})  # wrong
batch.on("success", sidekiq.ruby_job("Done"), {"import_id": 42})
batch.on("success", Done, {"import_id": 42}).on("complete", Awaited)
batch.on("success", Done, ["x"])  # wrong
batch.on("success", Row, 1)  # wrong
pending: int = batch.status().pending
share: str = batch.status().progress  # wrong

for status in Batches().in_state("open"):
    bid: str = status.bid
    wrong_bid: int = status.bid  # wrong
Batches().in_state("opened")  # wrong
Batches().find("abc").invalidate()
Batches().found("abc")  # wrong

sidekiq.periodic("@daily", row, args=[1], overlap="skip")
sidekiq.periodic("@daily", row, overlap="skipp")  # wrong
for cron in CronJobs():
    one: CronJob = cron
    text: str = cron.cron
    number: int = cron.cron  # wrong

state = JobStatus.find("abc")
state.jid  # wrong
if state is not None:
    jid: str = state.jid
    when: datetime = state.jid  # wrong
"""


def lines_for_mypy(program: Path) -> set[int]:
    """Where mypy finds errors, under `--strict`."""
    return lines_with_errors(mypy(program), program)


def lines_for_pyright(program: Path) -> set[int]:
    """
    Where pyright finds errors, by its own rules. It is run as basedpyright, whose package holds all of it; pyright's
    own package fetches the checker when it first runs.
    """
    settings = program.with_name("pyrightconfig.json")
    settings.write_text(json.dumps({"typeCheckingMode": "standard"}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", settings]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = json.loads(found.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}


@pytest.mark.parametrize(("checker", "lines_for"), [("mypy", lines_for_mypy), ("basedpyright", lines_for_pyright)])
def test_a_wrong_use_of_batches_and_periodic_jobs_is_an_error_where_it_stands(
    checker: str, lines_for: Callable[[Path], set[int]], tmp_path: Path
) -> None:
    """Members, callbacks, the data API and what `current_job()` has; a right use is no error."""
    pytest.importorskip(checker)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    found = lines_for(program)

    assert found == {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
