"""While a fleet moves from one Sidekiq to another, both releases read what a Python process says of itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import PYTHON_JOBS, RUBY_SWITCH
from interop_tests.support import python_jobs
from interop_tests.support.ledger import GATE, LEDGER, open_gate
from interop_tests.support.ruby import RubyRelease, RubySidekiq, release, run_ruby, why_missing
from sidekiq_py import program
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.ruby

OLDER, NEWER = "6.4", "8.1"
QUICK = (PYTHON_JOBS, "interop_tests.support.quick_beats")


@pytest.fixture
def both(redis_url: str, tmp_path: Path) -> Iterator[tuple[RubyRelease, RubyRelease]]:
    """Two releases, each with a worker of its own on the same Redis."""
    releases = release(OLDER), release(NEWER)
    for one in releases:
        if (reason := why_missing(one)) is not None:
            skip_or_fail(reason, switch=RUBY_SWITCH)
    older, newer = (
        RubySidekiq(one, redis_url=redis_url, queues=("ruby",), concurrency=2, log_path=tmp_path / f"{one.series}.log")
        for one in releases
    )
    with older, newer:
        # What other tests have pinned is forgotten: here the release is found out.
        program.reset()
        sidekiq.configure(redis_url=redis_url)
        yield releases
    program.reset()


def test_both_show_its_threads_queues_and_the_job_that_it_runs(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path, both: tuple[RubyRelease, RubyRelease]
) -> None:
    """Concurrency and running jobs stand where the older one looks, and where the newer one does."""
    worker = WorkerProcess(
        QUICK, redis_url=redis_url, arguments=["-c", "3", "-q", "default"], log_path=tmp_path / "python.log"
    )
    with worker:
        jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, 1, GATE)
        eventually(lambda: redis_client.hget(worker.identity, "busy") == b"1")

        seen = [
            run_ruby(
                one,
                """
                process = Sidekiq::ProcessSet.new.find { |found| found.identity == identity }
                work = Sidekiq::Workers.new.map { |_, _, found| found }
                payloads = work.map { |one| one.respond_to?(:payload) ? one.payload : one["payload"] }
                jobs = payloads.map { |payload| Sidekiq::JobRecord.new(payload) }
                waited = jobs.map { |job| (Time.now.to_f - job.enqueued_at.to_f).between?(0, 120) }
                [process["concurrency"], process["queues"], process["busy"], jobs.map(&:jid), waited]
                """,
                redis_url,
                identity=worker.identity,
            )
            for one in both
        ]
        open_gate(redis_client)

    assert seen == [[3, ["default"], 1, [jid], [True]]] * 2
