"""The examples in docs/periodic.md, batches.md, progress.md and extensions.md do what they say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs, JobStatus
from tests.support.documents import empty_program, python_examples
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

# What its reader has typed before is not on these pages; all others stand for themselves.
_FRAGMENTS = {"kombu_transport.md", "migrating_from_celery.md"}


@pytest.fixture
def own_program(redis_url: str) -> Iterator[str]:
    """A program that has declared and configured nothing but where Redis is; its URL."""
    with empty_program(redis_url) as url:
        yield url


def run_examples(page: str) -> dict[str, Any]:
    """Run a page's blocks one after the other; what they have defined."""
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    exec(compile(python_examples(page), page, "exec"), names)
    return names


def test_the_periodic_jobs_of_the_page_are_declared(own_program: str) -> None:
    """A worker that starts saves them; what the page says of tests holds."""
    run_examples("periodic.md")

    with sidekiq.embed(queues=["default", "low"]):
        found = {job.name: (job.cron, job.klass, job.args, job.overlap) for job in CronJobs()}

    assert found == {
        "Report": ("*/5 * * * * Europe/Berlin", "Report", [1], "allow"),
        "Billing::Reminder": ("0 12 * * 1-5 Etc/UTC", "Billing::Reminder", [], "allow"),
        "nightly": ("0 3 * * * Etc/UTC", "Report", [2], "skip"),
    }


def test_a_run_finds_out_which_tick_it_is_for(own_program: str) -> None:
    """As the page does it: the time of its tick, 0 for a run by hand, and None for a run that is not in the history."""
    tick_of_this_run = run_examples("periodic.md")["tick_of_this_run"]
    found: list[int | None] = []

    @sidekiq.periodic("0 0 1 1 *")
    @sidekiq.job(name="Yearly")
    def yearly() -> None:
        found.append(tick_of_this_run("Yearly"))

    @sidekiq.periodic("* * * * * *")
    @sidekiq.job(name="EachSecond", queue="seconds")
    def each_second() -> None:
        found.append(tick_of_this_run("EachSecond"))

    with sidekiq.embed(queues=["default"]):
        [by_hand] = [job for job in CronJobs() if job.name == "Yearly"]
        by_hand.run()
        eventually(lambda: len(found) == 1, within_seconds=60)
        yearly.perform_async()
        eventually(lambda: len(found) == 2, within_seconds=60)
    with sidekiq.embed(queues=["seconds"]):
        eventually(lambda: len(found) > 2, within_seconds=60)

    assert found[:2] == [0, None]
    assert found[2] in [run.tick for job in CronJobs() if job.name == "EachSecond" for run in job.runs()]


def test_the_batches_of_the_page_succeed(own_program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With their callbacks, and the second step that the first one's callback adds."""
    page = run_examples("batches.md")

    with sidekiq.embed(concurrency=2):
        eventually(lambda: page["overall"].status().success and page["batch"].status().success, within_seconds=60)
        eventually(lambda: "import 42 is done" in capsys.readouterr().out, within_seconds=60)

    assert page["batch"].rows.counts()["finished"] == 3


def test_the_job_of_the_page_shows_its_progress(
    own_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that the page stops ends as stopped, another one runs to its end."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("ann\nbob\n")
    page = run_examples("progress.md")
    other = page["import_file"].perform_async("people.csv")

    def states() -> list[str | None]:
        found = [JobStatus.find(page["jid"]), JobStatus.find(other)]
        return [status.status if status else None for status in found]

    with sidekiq.embed(queues=["imports"]):
        eventually(lambda: states() == ["stopped", "complete"], within_seconds=60)

    ended = JobStatus.find(other)
    assert ended is not None
    assert (ended.at, ended.total, ended.message) == (2, 2, "row 2")


def test_the_extension_of_the_page_writes_and_counts(own_program: str, redis_client: redis.Redis) -> None:
    """Its key is the last of each payload, and each end adds one."""
    ran = []
    run_examples("extensions.md")
    sidekiq.job(name="Noted")(lambda: ran.append(1)).perform_async()

    assert list(json.loads(redis_client.lindex("queue:default", 0)))[-1] == "tenant"
    with sidekiq.embed(concurrency=1):
        eventually(lambda: redis_client.hget("tenants:finished", "acme") == b"1", within_seconds=60)
    assert ran == [1]


# mypy reads the whole library without a cache: 10 s of a processor, and 90 s were seen beside six busy loops.
@pytest.mark.timeout(300)
def test_types_of_the_examples_are_right(tmp_path: Path) -> None:
    """A reader who copies one into a typed program sees no error that is not of his own making."""
    pytest.importorskip("mypy")
    pages = [page for page in sorted((REPOSITORY / "docs").glob("*.md")) if page.name not in _FRAGMENTS]
    for page in pages:
        (tmp_path / f"page_{page.stem}.py").write_text(python_examples(page.name))
    (tmp_path / "myapp").mkdir()
    for name in ("__init__.py", "jobs.py"):
        (tmp_path / "myapp" / name).touch()

    # The functions of the examples have no types, so mypy does not look into them; nor has Django any.
    relaxed = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-untyped-decorators", "--no-check-untyped-defs"]
    relaxed += ["--ignore-missing-imports", "--allow-subclassing-any"]
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary", *relaxed, "."]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert checked.stdout + checked.stderr == ""
