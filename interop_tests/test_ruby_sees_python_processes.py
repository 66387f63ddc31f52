"""Ruby's ProcessSet, Workers, Stats and Web UI show a Python process as one of their own, and its buttons work."""

import json
import os
import socket

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import GATE, LEDGER, open_gate
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

BEAT_SECONDS = 5


def test_ruby_lists_a_python_process_with_all_its_fields(ruby: RunRuby, start_python: StartPython) -> None:
    """Host, pid, concurrency, queues, memory, round trip: every value that the Busy page shows."""
    worker = start_python("-c", "3", "-q", "critical,2", "-q", "low")

    [process] = ruby(
        """
        Sidekiq::ProcessSet.new.map do |process|
          {"identity" => process.identity, "hostname" => process["hostname"], "pid" => process["pid"],
           "concurrency" => process["concurrency"], "queues" => process.queues, "busy" => process["busy"],
           "rss" => process["rss"].to_i, "rtt_us" => process["rtt_us"].to_i, "stopping" => process.stopping?,
           "tag" => process.tag, "labels" => process.labels, "age" => Time.now.to_f - process["started_at"],
           "beat_age" => Time.now.to_f - process["beat"].to_f}
        end
        """
    )

    assert process["identity"] == worker.identity
    assert (process["hostname"], process["pid"]) == (os.environ.get("DYNO") or socket.gethostname(), worker.pid)
    assert (process["concurrency"], sorted(process["queues"])) == (3, ["critical", "low"])
    assert (process["busy"], process["stopping"]) == (0, False)
    assert 0 <= process["beat_age"] <= process["age"] < 60
    assert process["rss"] > 1_000
    assert 0 < process["rtt_us"] < 1_000_000


def test_ruby_adds_up_the_fleet(ruby: RunRuby, start_python: StartPython, start_ruby: StartRuby) -> None:
    """Totals over a Ruby and a Python process."""
    start_python("-c", "3")
    start_ruby(concurrency=4)

    totals = ruby("set = Sidekiq::ProcessSet.new; [set.size, set.total_concurrency, set.total_rss > 10_000]")

    assert totals == [2, 7, True]


def test_the_heartbeat_has_the_fields_of_the_release(
    redis_client: redis.Redis, start_python: StartPython, start_ruby: StartRuby
) -> None:
    """The fields of the hash and the keys of its `info`, beside those of a Ruby process, and the same time to live."""
    ours, theirs = start_python().identity, start_ruby().identity

    assert set(redis_client.hkeys(ours)) >= set(redis_client.hkeys(theirs))
    assert list(json.loads(redis_client.hget(ours, "info") or "")) == list(
        json.loads(redis_client.hget(theirs, "info") or "")
    )
    assert redis_client.ttl(ours) == pytest.approx(60, abs=BEAT_SECONDS + 1)


def test_ruby_shows_the_job_that_python_is_running(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`Workers` yields process, thread and the payload as text, once the heart has beaten."""
    worker = start_python("-c", "2")
    jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, 1, GATE)
    eventually(lambda: redis_client.llen(LEDGER))

    work = eventually(
        lambda: ruby(
            """
            Sidekiq::Workers.new.map do |process, thread, work|
              job = Sidekiq::JobRecord.new(work["payload"])
              [process, thread, work["queue"], job.jid, job.display_class, Time.now.to_i - work["run_at"]]
            end
            """
        ),
        within_seconds=2 * BEAT_SECONDS,
    )
    open_gate(redis_client)

    [[process, thread, queue, shown_jid, display_class, seconds]] = work
    assert (process, queue, shown_jid, display_class) == (worker.identity, "default", jid, "FixtureJob")
    assert thread
    assert 0 <= seconds < 60


def test_ruby_counts_what_python_processed(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """Totals and today's history: a failure counts as processed too."""
    worker = start_python()
    python_jobs.fixture_job.perform_bulk([["ok"]] * 7)
    python_jobs.retry_false_job.perform_bulk([["raise"]] * 2)
    eventually(lambda: redis_client.llen("queue:default") == 0)

    worker.stop()

    processed, failed, today = ruby(
        "stats = Sidekiq::Stats.new; [stats.processed, stats.failed, Sidekiq::Stats::History.new(1).processed.values]"
    )
    assert (processed, failed, today) == (9, 2, [9])


def test_ruby_counts_queues_and_sets_that_python_filled(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """Enqueued, scheduled, and sizes by queue."""
    python_jobs.fixture_job.perform_bulk([["ok"]] * 3)
    python_jobs.python_job.perform_async("ok")
    python_jobs.fixture_job.perform_in(600, "ok")

    stats = ruby("stats = Sidekiq::Stats.new; [stats.enqueued, stats.scheduled_size, stats.queues]")

    assert stats == [4, 1, {"default": 3, "python": 1}]


def test_ruby_quiets_a_python_process(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """`Process#quiet!`: the next beat reads the signal, the process fetches no more and says so."""
    worker = start_python()

    ruby("Sidekiq::ProcessSet.new.first.quiet!")

    eventually(lambda: redis_client.hget(worker.identity, "quiet") == b"true", within_seconds=3 * BEAT_SECONDS)
    python_jobs.fixture_job.perform_async("ok")
    assert ruby("Sidekiq::ProcessSet.new.first.stopping?") is True
    assert redis_client.llen("queue:default") == 1


def test_ruby_stops_a_python_process(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """`Process#stop!`: the process leaves with exit code 0 and is no longer listed."""
    worker = start_python()

    ruby("Sidekiq::ProcessSet.new.first.stop!")

    assert worker.wait(within_seconds=3 * BEAT_SECONDS) == 0
    assert redis_client.smembers("processes") == set()


def test_ruby_asks_a_python_process_for_a_thread_dump(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`Process#dump_threads`: the log shows where each thread stands, and the process goes on."""
    worker = start_python("-c", "1")
    python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, 1, GATE)
    eventually(lambda: redis_client.llen(LEDGER))

    ruby("Sidekiq::ProcessSet.new.first.dump_threads")

    eventually(lambda: "in _wait_for" in worker.log, within_seconds=3 * BEAT_SECONDS)
    open_gate(redis_client)
    assert worker.is_running


def test_the_busy_page_shows_a_python_process_and_its_job(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Host and pid, queues, and a row for the job in progress."""
    worker = start_python("-q", "critical", "-q", "default")
    jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, "<shown>", GATE)
    eventually(lambda: redis_client.llen(LEDGER))

    page = eventually(
        lambda: next((page for page in [ruby('WebUi.new.visit("/busy")', web=True)] if jid in page), None),
        within_seconds=2 * BEAT_SECONDS,
    )
    open_gate(redis_client)

    assert f"{socket.gethostname()}:{worker.pid}" in page
    assert "critical, default" in page
    assert "&lt;shown&gt;" in page


def test_the_buttons_of_the_busy_page_quiet_and_stop_a_python_process(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """The forms that the page offers, token and all."""
    worker = start_python()
    button = 'WebUi.new.press("/busy", {"identity" => identity, button => "1"})'

    assert ruby(button, web=True, identity=worker.identity, button="quiet") == 302
    eventually(lambda: redis_client.hget(worker.identity, "quiet") == b"true", within_seconds=3 * BEAT_SECONDS)
    assert ruby(button, web=True, identity=worker.identity, button="stop") == 302

    assert worker.wait(within_seconds=3 * BEAT_SECONDS) == 0


def test_ruby_sees_each_child_of_a_python_parent_and_stops_them_all(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """A child that was stopped from Ruby is not replaced; when all are, the parent leaves in peace."""
    parent = start_python("--processes", "2", "-c", "2").wait_until_ready(processes=2)

    expected = [[identity, 2] for identity in sorted(parent.identities())]

    seen = ruby("Sidekiq::ProcessSet.new.map { |process| [process.identity, process['concurrency']] }.sort")
    ruby("Sidekiq::ProcessSet.new.each(&:stop!)")

    assert seen == expected
    assert parent.wait(within_seconds=3 * BEAT_SECONDS) == 0
    assert redis_client.smembers("processes") == set()


def test_sidekiqmon_prints_python_processes(ruby: RunRuby, start_python: StartPython) -> None:
    """Ruby's command-line monitor lists the process, its threads and its queues."""
    worker = start_python("-c", "3", "-q", "critical", "-q", "low", "--tag", "our-tag")

    printed = ruby(
        """
        require "sidekiq/monitor"
        require "stringio"
        printed, $stdout = $stdout, StringIO.new
        Sidekiq::Monitor::Status.new.display("all")
        $stdout.string.tap { $stdout = printed }
        """
    )

    assert f"{worker.identity} [our-tag]" in printed
    assert "Threads: 3 (0 busy)" in printed
    assert "critical, low" in printed


def test_the_dashboard_renders_with_python_alone(ruby: RunRuby, start_python: StartPython) -> None:
    """Every page of the Web UI comes without an error while only Python is there."""
    start_python()
    python_jobs.fixture_job.perform_in(600, "ok")

    pages = ruby(
        """
        ui = WebUi.new
        %w[/ /busy /queues /retries /scheduled /morgue /stats].to_h { |path| [path, ui.visit(path).size] }
        """,
        web=True,
    )

    assert all(size > 0 for size in pages.values())


def test_ruby_leaves_a_living_python_process_in_the_set(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Ruby's clean-up removes identities without a hash, not ours."""
    worker = start_python()
    redis_client.sadd("processes", "gone:1:abcdef")

    ruby("Sidekiq::ProcessSet.new")

    assert redis_client.smembers("processes") == {worker.identity.encode()}
