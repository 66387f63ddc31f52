"""Our data API shows a Ruby process, stops it and detects its release."""

import json

import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, entries, members, open_gate
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.api import ProcessSet, Stats, WorkSet
from tests.support.waiting import eventually

QUICK_BEAT = {"FIXTURE_BEAT_SECONDS": "0.3"}


def test_python_lists_a_ruby_process(python_client: None, start_ruby: StartRuby) -> None:
    """Identity, pid, queues and concurrency."""
    worker = start_ruby(queues=["critical", "low"], concurrency=3)

    [process] = ProcessSet()

    assert (process.identity, process.pid) == (worker.identity, worker.pid)
    assert (sorted(process.queues), process.concurrency) == (["critical", "low"], 3)


def test_python_shows_the_job_that_ruby_is_running(
    python_client: None, redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby
) -> None:
    """`WorkSet` reads this release's key and payload."""
    worker = start_ruby(environment=QUICK_BEAT)
    jid = ruby('FixtureJob.perform_async("ledger_and_wait_for", key, 1, gate)', key=LEDGER, gate=GATE)

    [(process, _thread, work)] = eventually(lambda: list(WorkSet()))
    open_gate(redis_client)

    assert (process, work.queue, work.job.jid) == (worker.identity, "default", jid)


def test_python_stops_a_ruby_process(python_client: None, start_ruby: StartRuby) -> None:
    """The signal is read at Ruby's next beat."""
    worker = start_ruby(environment=QUICK_BEAT)

    next(iter(ProcessSet())).stop()

    assert worker.wait() == 0


def test_python_counts_what_ruby_processed(python_client: None, ruby: RunRuby, start_ruby: StartRuby) -> None:
    """Both read the same counters, which Ruby writes at each beat."""
    start_ruby(environment=QUICK_BEAT)

    ruby('3.times { FixtureJob.perform_async("ok") }; RetryFalseJob.perform_async("raise")')

    assert eventually(counts_of_four) == (4, 1)


def counts_of_four() -> tuple[int, int] | None:
    """Processed and failed, once four jobs have been processed."""
    stats = Stats()
    return (stats.processed, stats.failed) if stats.processed == 4 else None


def test_a_worker_that_was_told_no_release_writes_as_the_ruby_process_beside_it(
    redis_client: redis.Redis,
    redis_url: str,
    ruby_release: RubyRelease,
    start_ruby: StartRuby,
    start_python: StartPython,
) -> None:
    """The dialect is detected from live Ruby processes: times in that release's unit, keys in its order."""
    start_ruby(queues=["nothing-here"])
    start_python("-q", "python", environment={"FIXTURE_SIDEKIQ_VERSION": None})

    client = sidekiq.Client(redis_url=redis_url)
    client.push({"class": "PythonJob", "args": ["raise", "boom"], "queue": "python"})

    [failed] = eventually(lambda: members(redis_client, "retry"))
    unit = int if ruby_release.sidekiq_version.startswith("8") else float
    assert {type(json.loads(failed)[key]) for key in ("created_at", "enqueued_at", "failed_at")} == {unit}
    assert entries(redis_client) == []
