"""Ruby's ProcessSet, WorkSet, Stats and Web UI show a Python process as one of their own, and its buttons work."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
import redis

from interop_tests.conftest import PYTHON_JOBS, RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import GATE, LEDGER, open_gate
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.client.sync_client import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

# For tests that wait for a heartbeat; the others run with the release's own.
QUICK = (PYTHON_JOBS, "interop_tests.support.quick_beats")

# What is asked of a process that a release may not know is nil there.
PROCESSES = """
Sidekiq::ProcessSet.new.map do |process|
  ask = ->(name) { process.respond_to?(name) ? process.public_send(name) : nil }
  process.instance_variable_get(:@attribs).merge(
    "labels" => process.labels, "tag" => process.tag, "stopping" => process.stopping?,
    "weights" => ask[:weights], "version" => ask[:version], "embedded" => ask[:embedded?],
    "capsules" => ask[:capsules], "leader" => ask[:leader?], "queues()" => ask[:queues], "now" => Time.now.to_f
  )
end
"""

# The running jobs; until 7.2 a hash each, whose payload is an object (6.0) or text.
WORK = """
Sidekiq::Workers.new.map do |process, thread, work|
  queue, run_at, payload =
    work.respond_to?(:job) ? [work.queue, work.run_at, work.payload] : work.values_at("queue", "run_at", "payload")
  job = payload.is_a?(String) ? JSON.parse(payload) : payload
  if work.respond_to?(:job)
    shown = [work.job.display_class, work.job.display_args, work.job.jid, work.process_id, work.thread_id]
    raise shown.inspect unless shown == [job["class"], job["args"], job["jid"], process, thread]
  end
  {"process" => process, "thread" => thread, "queue" => queue, "seconds" => Time.now.to_i - run_at.to_i,
   "job" => job}
end
"""


def test_ruby_lists_a_python_process_with_all_its_fields(
    ruby: RunRuby, ruby_release: RubyRelease, start_python: StartPython
) -> None:
    """Every value that a release's `Process` has and that the Busy page shows."""
    worker = start_python("-c", "3", "-q", "critical,2", "-q", "low", "-g", "shop")

    [process] = ruby(PROCESSES)

    assert process["identity"] == worker.identity
    assert (process["hostname"], process["pid"]) == (os.environ.get("DYNO") or socket.gethostname(), worker.pid)
    assert (process["concurrency"], sorted(process["queues"])) == (3, ["critical", "low"])
    assert (process["tag"], process["labels"]) == ("shop", ["sidekiq_py"])
    assert (process["busy"], process["stopping"]) == (0, False)
    assert 0 <= process["now"] - process["beat"] <= process["now"] - process["started_at"] < 60
    if ruby_release.numbers >= (6, 2):
        assert process["rss"] > 1_000
        assert 0 < process["rtt_us"] < 10_000_000


@pytest.mark.releases(since="7.0.3")
def test_ruby_lists_what_newer_releases_know_of_a_process(
    ruby: RunRuby, ruby_release: RubyRelease, start_python: StartPython, tmp_path: Path
) -> None:
    """Version, embedded and weights since 7.0, capsules since 8.0.9."""
    settings = tmp_path / "sidekiq.yml"
    settings.write_text(
        """
        concurrency: 2
        labels: [reports]
        queues: [[critical, 3], [default, 1]]
        capsules: {single: {queues: [imports], concurrency: 1}}
        """
    )
    start_python("-C", str(settings))

    [process] = ruby(PROCESSES)

    assert (process["version"], process["embedded"]) == (ruby_release.sidekiq_version, False)
    assert (process["concurrency"], process["labels"]) == (3, ["reports", "sidekiq_py"])
    assert process["queues()"] == process["queues"] == ["critical", "default", "imports"]
    if ruby_release.numbers < (8, 0, 9):
        assert process["weights"] == [{"critical": 3, "default": 1}, {"imports": 0}]
    else:
        assert (process["leader"], process["weights"]) == (False, {"critical": 3, "default": 1, "imports": 0})
        assert process["capsules"] == {
            "default": {"concurrency": 2, "mode": "weighted", "weights": {"critical": 3, "default": 1}},
            "single": {"concurrency": 1, "mode": "strict", "weights": {"imports": 0}},
        }


@pytest.mark.releases(since="7.0.2")
def test_ruby_finds_one_python_process_by_its_identity(
    ruby: RunRuby, ruby_release: RubyRelease, start_python: StartPython
) -> None:
    """`ProcessSet[identity]`; no process is the leader without Sidekiq Enterprise."""
    worker = start_python()

    found = ruby(
        """
        process = Sidekiq::ProcessSet[identity]
        [process["pid"], process.version, process["busy"], Sidekiq::ProcessSet.new.leader]
        """,
        identity=worker.identity,
    )

    assert found == [worker.pid, ruby_release.sidekiq_version, 0, ""]


def test_ruby_adds_up_the_fleet(
    ruby: RunRuby, ruby_release: RubyRelease, start_python: StartPython, start_ruby: StartRuby
) -> None:
    """Totals over a Ruby process and two children of a Python one."""
    start_python("--processes", "2", "-c", "3").wait_until_ready(processes=2)
    start_ruby(concurrency=4)

    size, in_stats, concurrency, totals = ruby(
        """
        set = Sidekiq::ProcessSet.new
        [set.size, Sidekiq::Stats.new.processes_size, set.sum { |process| process["concurrency"] },
         set.respond_to?(:total_rss) ? [set.total_concurrency, set.total_rss > 30_000] : nil]
        """
    )

    assert (size, in_stats, concurrency) == (3, 3, 10)
    assert totals == ([10, True] if ruby_release.numbers >= (6, 2) else None)


def test_the_heartbeat_has_the_fields_of_the_release(
    redis_client: redis.Redis, start_python: StartPython, start_ruby: StartRuby
) -> None:
    """The fields of the hash, the keys of its `info` and the types of their values are those of a Ruby process."""
    ours, theirs = start_python().identity, start_ruby().identity

    # A live process of another release may come by any time, so what only others read is left in.
    assert set(redis_client.hkeys(ours)) >= set(redis_client.hkeys(theirs))
    our_info, their_info = (json.loads(redis_client.hget(identity, "info") or "") for identity in (ours, theirs))
    assert [(key, type(value)) for key, value in our_info.items()] == [
        (key, type(value)) for key, value in their_info.items()
    ]
    assert 0 < redis_client.ttl(ours) <= 60


def test_ruby_shows_the_job_that_python_is_running(
    redis_client: redis.Redis, ruby: RunRuby, ruby_release: RubyRelease, start_python: StartPython
) -> None:
    """`WorkSet` yields process, thread and job after the first heartbeat; its size comes from the processes."""
    worker = start_python("-c", "2", require=QUICK)
    jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, 1, GATE)
    key = f"{worker.identity}{ruby_release.work_key_suffix}"
    eventually(lambda: redis_client.exists(key))

    [work] = ruby(WORK)
    size, in_stats, found = ruby(
        """
        set = Sidekiq::Workers.new
        find = [:find_work, :find_work_by_jid].find { |name| set.respond_to?(name) }
        [set.size, Sidekiq::Stats.new.workers_size, find && set.public_send(find, jid).job.jid]
        """,
        jid=jid,
    )
    open_gate(redis_client)

    assert (work["process"], work["queue"], work["job"]["jid"]) == (worker.identity, "default", jid)
    assert work["job"]["args"] == ["ledger_and_wait_for", LEDGER, 1, GATE]
    assert work["thread"]
    assert 0 <= work["seconds"] < 60
    assert (size, in_stats) == (1, 1)
    assert found == (jid if ruby_release.numbers >= (7, 2, 3) else None)
    eventually(lambda: not redis_client.exists(key))


def test_ruby_counts_what_python_processed(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """Totals and history by day: a failure also counts as processed."""
    worker = start_python()
    python_jobs.fixture_job.perform_bulk([["ok"]] * 7)
    python_jobs.retry_false_job.perform_bulk([["raise"]] * 2)
    # A stop gives back what was fetched and has not started.
    eventually(lambda: redis_client.get("stat:processed") == b"9")

    worker.stop()

    # Two days, as midnight may come in between.
    totals, days = ruby(
        """
        stats, history = Sidekiq::Stats.new, Sidekiq::Stats::History.new(2)
        [[stats.processed, stats.failed], [history.processed.values.sum, history.failed.values.sum]]
        """
    )
    assert totals == days == [9, 2]


def test_ruby_counts_queues_and_sets_that_python_filled(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Every size that the dashboard shows, and how long the oldest job has been waiting."""
    with start_python():
        python_jobs.retry_zero_job.perform_async("raise")
        python_jobs.fixture_job.perform_bulk([["raise"]] * 2)
        eventually(lambda: (redis_client.zcard("dead"), redis_client.zcard("retry")) == (1, 2))
    python_jobs.fixture_job.perform_bulk([["ok"]] * 3)
    python_jobs.python_job.perform_async("ok")
    python_jobs.fixture_job.perform_in(600, "ok")

    sizes, queues, latency = ruby(
        """
        stats = Sidekiq::Stats.new
        sizes = %w[enqueued scheduled_size retry_size dead_size processes_size workers_size]
        [sizes.map { |name| stats.public_send(name) }, stats.queues, stats.default_queue_latency]
        """
    )

    assert sizes == [4, 1, 2, 1, 0, 0]
    assert queues == {"default": 3, "python": 1}
    assert 0 <= latency < 60


def test_ruby_quiets_a_python_process(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """
    `Process#quiet!`: the next heartbeat reads the signal; once the process reports that it is quiet, it starts no
    job.
    """
    worker = start_python(require=QUICK)

    ruby("Sidekiq::ProcessSet.new.first.quiet!")

    eventually(lambda: redis_client.hget(worker.identity, "quiet") == b"true")
    python_jobs.fixture_job.perform_async("ledger", LEDGER, 1)
    assert ruby("Sidekiq::ProcessSet.new.first.stopping?") is True
    # A blocking move that was open takes the job, and gives it back.
    eventually(lambda: redis_client.llen("queue:default") == 1)
    assert not redis_client.exists(LEDGER)


def test_ruby_stops_a_python_process(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """`Process#stop!`, with the release's own heartbeat: the process exits with code 0 and is no longer listed."""
    worker = start_python()

    ruby("Sidekiq::ProcessSet.new.first.stop!")

    assert worker.wait(within_seconds=60) == 0
    assert redis_client.smembers("processes") == set()


def test_ruby_asks_a_python_process_for_a_thread_dump(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`Process#dump_threads`: the log shows the stack of each thread, and the process continues."""
    worker = start_python("-c", "1", require=QUICK)
    python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, 1, GATE)
    eventually(lambda: redis_client.llen(LEDGER))

    ruby("Sidekiq::ProcessSet.new.first.dump_threads")

    eventually(lambda: "in _wait_for" in worker.log)
    open_gate(redis_client)
    assert worker.is_running


def test_the_busy_page_shows_a_python_process_and_its_job(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Host and pid, queues, and a row for the job in progress."""
    worker = start_python("-q", "critical", "-q", "default", require=QUICK)
    jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, "<shown>", GATE)
    eventually(lambda: redis_client.llen(LEDGER))

    eventually(lambda: redis_client.hget(worker.identity, "busy") == b"1")

    page = ruby('WebUi.new.visit("/busy")', web=True)
    open_gate(redis_client)

    assert jid in page

    assert f"{os.environ.get('DYNO') or socket.gethostname()}:{worker.pid}" in page
    assert "critical, default" in page
    assert "&lt;shown&gt;" in page


def test_the_buttons_of_the_busy_page_quiet_and_stop_a_python_process(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """The forms on the page, including the token."""
    worker = start_python(require=QUICK)
    button = 'WebUi.new.press("/busy", {"identity" => identity, button => "1"})'

    assert ruby(button, web=True, identity=worker.identity, button="quiet") == 302
    eventually(lambda: redis_client.hget(worker.identity, "quiet") == b"true")
    assert ruby(button, web=True, identity=worker.identity, button="stop") == 302

    assert worker.wait(within_seconds=60) == 0


def test_ruby_sees_each_child_of_a_python_parent_and_stops_them_all(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """A child that was stopped from Ruby is not replaced; when all children are stopped, the parent exits normally."""
    parent = start_python("--processes", "2", "-c", "2", require=QUICK).wait_until_ready(processes=2)
    expected = [[identity, 2] for identity in sorted(parent.identities())]

    seen = ruby("Sidekiq::ProcessSet.new.map { |process| [process.identity, process['concurrency']] }.sort")
    ruby("Sidekiq::ProcessSet.new.each(&:stop!)")

    assert seen == expected
    assert parent.wait(within_seconds=60) == 0
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
    """Every page of the Web UI renders without an error while only Python is running."""
    start_python()
    jid = python_jobs.fixture_job.perform_in(600, "ok")

    pages = ruby(
        """
        ui = WebUi.new
        entry = Sidekiq::ScheduledSet.new.first
        paths = %w[/ /busy /queues /retries /scheduled /morgue /stats] + ["/scheduled/#{entry.score}-#{entry.jid}"]
        paths += %w[/metrics /metrics/FixtureJob] if defined?(Sidekiq::Metrics::Query)
        paths += %w[/profiles] if Sidekiq::VERSION >= "8"
        paths.map { |path| ui.visit(path) }
        """,
        web=True,
    )

    assert len(pages) >= 8
    assert jid in pages[7]


def test_ruby_leaves_a_living_python_process_in_the_set(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Ruby's clean-up removes only identities without a hash, and not ours."""
    worker = start_python()
    redis_client.sadd("processes", "gone:1:abcdef")

    ruby("Sidekiq::ProcessSet.new")

    assert redis_client.smembers("processes") == {worker.identity.encode()}


ASYNC_JOBS = """
import asyncio
import sidekiq_py as sidekiq

@sidekiq.job(name="AsyncHold")
async def hold():
    await asyncio.sleep(600)
"""


@pytest.mark.releases(since="6.4")
def test_the_busy_page_shows_no_utilization_above_100_percent(
    ruby: RunRuby, start_python: StartPython, tmp_path: Path
) -> None:
    """Coroutines count among the jobs that a process may run at once, as Ruby divides by that number."""
    (tmp_path / "async_jobs.py").write_text(ASYNC_JOBS)
    start_python(
        "-c", "1", "--async-concurrency", "3", "-t", "0.1", require=(*QUICK, "async_jobs"), python_path=[tmp_path]
    )
    Client().push_bulk({"class": "AsyncHold", "args": [[] for _ in range(3)]})

    eventually(lambda: ruby("Sidekiq::ProcessSet.new.sum { |process| process['busy'] }") == 3)
    page = ruby("WebUi.new.visit('/busy')", web=True)

    assert re.findall(r"<h3>\s*(\d+)%", page) == ["75"]
