"""Batches whose jobs, callbacks and openers are Python's and real Ruby's."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import StartRuby
from interop_tests.support.ruby import RubyRelease, run_ruby
from sidekiq_py import program
from sidekiq_py.active_job import perform_later
from sidekiq_py.api import DeadSet, RetrySet
from sidekiq_py.api.processes import ProcessSet
from sidekiq_py.cli import ruby_support
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches.audit import Audit
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.errors import BatchDoneError, BatchGoneError, BatchRolledBackError
from sidekiq_py.extensions.batches.ruby_runs import RubyRuns
from sidekiq_py.registry import registry
from tests.support.queued_jobs import queued_jobs
from tests.support.waiting import eventually

WAIT_SECONDS = 30
PROGRAM = "batches.rb"

RunRuby = Callable[..., Any]


@pytest.fixture(autouse=True)
def app(ruby_release: RubyRelease, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The program in Python, and the support file for that in Ruby."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)
    kept = list(registry)
    registry.clear()
    support = tmp_path / "sidekiq_py.rb"
    support.write_text(ruby_support.text())
    monkeypatch.setenv("SIDEKIQ_PY_SUPPORT", str(support))
    yield
    sync_client.current().close()
    registry.clear()
    for definition in kept:
        registry.add(definition)
    program.reset()


@pytest.fixture
def ruby(ruby_release: RubyRelease, redis_url: str) -> RunRuby:
    """Runs Ruby code in a program that has loaded the support file, but is no worker."""
    return lambda code, **values: run_ruby(ruby_release, code, redis_url, also=[PROGRAM], **values)


@pytest.fixture
def ruby_worker(start_ruby: StartRuby) -> Any:
    """Ruby's worker."""
    return start_ruby(program=PROGRAM, queues=["ruby", "default"])


@pytest.fixture
def python_calls() -> list[tuple[str, str, Any]]:
    """What the callback in Python was called with; it, and a job, are declared."""
    calls: list[tuple[str, str, Any]] = []

    @sidekiq.job(name="python_done", queue="python")
    def done(bid: str, event: str, options: Any) -> None:
        calls.append((event, bid, options))

    @sidekiq.job(name="python_deed", queue="python")
    def deed(*args: Any) -> None:
        pass

    return calls


def callbacks(client: redis.Redis) -> list[Any]:
    """What Ruby's callbacks have noted."""
    return [json.loads(line) for line in client.lrange("callbacks", 0, -1)]


@pytest.mark.usefixtures("ruby_worker")
def test_python_s_batch_of_ruby_jobs(python_calls: list[Any], redis_client: redis.Redis) -> None:
    """Ruby's ends move its counters; its callbacks are a Python job, a Ruby class, and a Ruby job by its name."""
    deed = sidekiq.ruby_job("BatchDeed", queue="ruby")
    batch = sidekiq.Batch(description="mixed")
    batch.on("success", "python_done", {"import_id": 42}).on("success", "BatchDone#on_success", 5)
    with batch.jobs():
        for _ in range(5):
            deed.perform_async("ok")
        sidekiq.Client().push({"class": "python_deed", "args": [], "queue": "python"})

    with sidekiq.embed(queues=["python"]):
        batch.wait(WAIT_SECONDS, until="success")
        eventually(lambda: python_calls and callbacks(redis_client), WAIT_SECONDS)

    assert python_calls == [("success", batch.bid, {"import_id": 42})]
    assert callbacks(redis_client) == [["success", batch.bid, 5, 6, 0]]
    assert redis_client.keys("sidekiq_py:batches:ruby:*") == []


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_s_batch_of_jobs_in_both_languages(
    ruby: RunRuby, python_calls: list[Any], redis_client: redis.Redis
) -> None:
    """Opened by a Ruby program that is no worker."""
    bid = ruby(
        """
        batch = SidekiqPy::Batch.new
        batch.description = "from Ruby"
        batch.on(:complete, BatchDone, "n" => 1)
        batch.on(:success, BatchDone, "n" => 2)
        batch.on(:success, {"class" => "python_done", "queue" => "python"}, {"n" => 3})
        batch.jobs do
          100.times { |number| BatchDeed.perform_async("ok", number) }
          Sidekiq::Client.push_bulk("class" => "python_deed", "queue" => "python", "args" => [[1], [2]])
          BatchDeed.perform_in(1, "ok")
        end
        return batch.bid
        """
    )

    with sidekiq.embed(queues=["python"]):
        status = Batch.find(bid).wait(WAIT_SECONDS, until="success")
        eventually(lambda: python_calls and len(callbacks(redis_client)) == 2, WAIT_SECONDS)

    assert (status.total, status.pending, status.description) == (103, 0, "from Ruby")
    assert sorted(entry[:3] for entry in callbacks(redis_client)) == [
        ["complete", bid, {"n": 1}],
        ["success", bid, {"n": 2}],
    ]
    assert python_calls == [("success", bid, {"n": 3})]


def test_ruby_s_jobs_are_pushed_as_without_a_batch(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """Except for the batch's key, which comes after the keys that Sidekiq's client writes."""
    jobs = ruby(
        """
        BatchDeed.perform_async("ok")
        batch = SidekiqPy::Batch.new
        batch.jobs { BatchDeed.perform_async("ok") }
        return Sidekiq.redis { |conn| conn.lrange("queue:ruby", 0, -1) }
        """
    )

    member, plain = (json.loads(job) for job in jobs)
    assert set(member) - set(plain) == {"sidekiq_py_batch"}
    assert type(member["enqueued_at"]) is type(plain["enqueued_at"])
    assert [key for key in member if key != "sidekiq_py_batch"] == list(plain)


def test_client_middleware_in_ruby_sees_no_other_jobs_than_those_of_the_block(ruby: RunRuby) -> None:
    """A batch without callbacks pushes nothing of its own, which middleware could count or stop."""
    seen = ruby(
        """
        $seen = []
        watch = Class.new do
          def call(_job, payload, *)
            $seen << payload["class"].to_s
            yield
          end
        end
        Sidekiq.configure_client { |config| config.client_middleware { |chain| chain.add watch } }
        SidekiqPy::Batch.new.jobs { BatchDeed.perform_async("ok") }
        return $seen
        """
    )

    assert seen == ["BatchDeed"]


@pytest.mark.parametrize("extra", ["", ', "at" => Time.now.to_f + 600'])
def test_ruby_pushes_many_jobs_of_a_batch_at_once(ruby: RunRuby, extra: str) -> None:
    """Sidekiq sends them in one command. A script's command takes some 8,000 words, so they are pushed in slices."""
    total, queued, scheduled = ruby(
        f"""
        jobs = (1..10_000).map {{ |number| ["ok", number] }}
        batch = SidekiqPy::Batch.new
        batch.jobs {{ Sidekiq::Client.push_bulk("class" => BatchDeed, "batch_size" => 10_000, "args" => jobs{extra}) }}
        return [batch.status.total, Sidekiq::Queue.new("ruby").size, Sidekiq::ScheduledSet.new.size]
        """
    )

    assert (total, queued + scheduled) == (10_000, 10_000)


SHARD = r"""
options = {url: ENV["REDIS_URL"].sub(/\d+\z/, "7"), size: 1}
options.update(pool_name: "shard", logger: Sidekiq.logger) if Sidekiq::VERSION.to_i > 6
shard = Sidekiq::RedisConnection.create(options)
batch = SidekiqPy::Batch.new
"""


def test_a_push_to_another_redis_in_a_block_in_ruby_says_so(ruby: RunRuby) -> None:
    """The other Redis has no such batch; the error says why, and what to do instead."""
    bid, message = ruby(
        SHARD
        + """
        batch.jobs { Sidekiq::Client.via(shard) { BatchDeed.perform_async } }
        rescue SidekiqPy::Batch::Error => error
        return [batch.bid, error.message]
        """
    )

    assert message == f"a job in the block of batch {bid} is pushed to another Redis than the batch's; push it outside"


@pytest.mark.releases(since="7")
def test_ruby_opens_a_batch_on_the_redis_that_via_names(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """`Sidekiq.redis` is that Redis in the block of `via`; in Sidekiq 6 it is not, and the push is refused."""
    total = ruby(
        SHARD
        + """
        return Sidekiq::Client.via(shard) { batch.jobs { 20.times { BatchDeed.perform_async } }.status.total }
        """
    )

    assert total == 20
    assert redis_client.keys("*") == []


def test_processes_forked_in_a_block_in_ruby_push_all_their_jobs(ruby: RunRuby) -> None:
    """As the gem parallel forks them. With its parent's marks, a child's jobs would count as already pushed."""
    total, queued, members = ruby(
        """
        batch = SidekiqPy::Batch.new
        batch.jobs do
          BatchDeed.perform_async("ok")
          children = 4.times.map do
            Process.fork do
              25.times { BatchDeed.perform_async("ok") }
              exit!(0)
            end
          end
          children.each { |pid| Process.wait(pid) }
          25.times { BatchDeed.perform_async("ok") }
        end
        jobs = Sidekiq::Queue.new("ruby").map { |job| job.item["sidekiq_py_batch"] }
        return [batch.status.total, jobs.size, jobs.uniq.size]
        """
    )

    assert (total, queued, members) == (126, 126, 126)


@pytest.mark.usefixtures("ruby_worker")
def test_failures_retries_and_deaths_in_ruby(redis_client: redis.Redis) -> None:
    """A job that fails and succeeds later, one that dies, one that is dropped."""
    redis_client.set("broken", 1)
    batch = sidekiq.Batch()
    for event in ("complete", "success", "death"):
        batch.on(event, "BatchDone#on_" + event, event)
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby", retry=5).perform_async("fail_while", "broken")
        dead = sidekiq.ruby_job("BatchFragile", queue="ruby", retry=0).perform_async("fail_while", "broken")
        sidekiq.ruby_job("BatchDropped", queue="ruby", retry=False).perform_async("fail_while", "broken")

    status = batch.wait(WAIT_SECONDS)
    eventually(lambda: batch.status().dead == 2, WAIT_SECONDS)
    assert status.pending == 3
    assert dead in batch.status().dead_jids
    members = batch.status().as_dict()["members"]
    assert {one["error"]["error_message"] for one in members} == {"no e-mail"}
    redis_client.delete("broken")
    batch.remove([one["jid"] for one in members if one["error"]["class"] == "BatchDropped"])
    eventually(lambda: batch.status().failures == 0, WAIT_SECONDS)
    batch.retry_failed()
    batch.wait(WAIT_SECONDS, until="success")

    eventually(lambda: len(callbacks(redis_client)) == 3, WAIT_SECONDS)
    assert sorted(entry[0] for entry in callbacks(redis_client)) == ["complete", "death", "success"]


@pytest.mark.releases(since="7")
@pytest.mark.usefixtures("ruby_worker")
def test_a_job_that_ruby_discards_is_a_death(redis_client: redis.Redis) -> None:
    """Until 8.0.7 Sidekiq calls no death handler for it, so the support file counts the death itself."""
    redis_client.set("broken", 1)
    batch = sidekiq.Batch().on("death", "BatchDone#on_death")

    with batch.jobs():
        jid = sidekiq.ruby_job("BatchDiscarded", queue="ruby", retry=5).perform_async("fail_while", "broken")

    eventually(lambda: batch.status().dead_jids == [jid], WAIT_SECONDS)
    eventually(lambda: [entry[0] for entry in callbacks(redis_client)] == ["death"], WAIT_SECONDS)


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_reads_rows_as_python_does_and_retries_the_failed(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """Of a tracked batch: the counts, pages of two rows in one state, and every field of a row."""
    redis_client.set("broken", 1)
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_bulk([["refuse", f"row {number}"] for number in range(3)])
        sidekiq.ruby_job("BatchFragile", queue="ruby", retry=0).perform_async("fail_while", "broken")
        sidekiq.ruby_job("BatchDeed", queue="nobody").perform_async("ok")
    eventually(lambda: batch.rows.counts() == {**batch.rows.counts(), "failed": 3, "dead": 1}, WAIT_SECONDS)

    counts, first, rest, dead, waiting = ruby(
        """
        rows = SidekiqPy::Batch.new(bid).rows
        first = rows.page("failed", limit: 2)
        return [rows.counts, first, rows.page("failed", after: first["next"]), rows.page("dead"), rows.page("enqueued")]
        """,
        bid=batch.bid,
    )

    assert counts == batch.rows.counts()
    assert first == batch.rows.page("failed", limit=2).as_dict()
    assert rest == batch.rows.page("failed", after=first["next"]).as_dict()
    assert dead == batch.rows.page("dead").as_dict()
    assert waiting == batch.rows.page("enqueued").as_dict()
    redis_client.delete("broken")
    assert ruby("SidekiqPy::Batch.new(bid).retry_failed", bid=batch.bid) == 4
    eventually(lambda: batch.rows.counts()["finished"] == 1, WAIT_SECONDS)


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_job_adds_to_its_batch(redis_client: redis.Redis) -> None:
    """While it runs, also to a batch that Python has opened."""
    batch = sidekiq.Batch()
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("add", "add", "add", "write", "done", 1)

    status = batch.wait(WAIT_SECONDS, until="success")

    assert (status.total, status.openers) == (4, [])
    assert redis_client.get("done") == b"1"


@pytest.mark.usefixtures("ruby_worker")
def test_children_across_languages(ruby: RunRuby, python_calls: list[Any]) -> None:
    """A child that Ruby opens within a parent's block; the parent's callback is Python's."""
    parent, child = ruby(
        """
        done = {"class" => "python_done", "queue" => "python"}
        parent = SidekiqPy::Batch.new.on(:success, done, "parent")
        child = SidekiqPy::Batch.new.on(:success, done, "child").on(:complete, BatchDone)
        parent.jobs { child.jobs { BatchDeed.perform_async("ok") } }
        return [parent.bid, child.bid]
        """
    )

    with sidekiq.embed(queues=["python"], concurrency=1):
        status = Batch.find(parent).wait(WAIT_SECONDS, until="success")
        eventually(lambda: len(python_calls) == 2, WAIT_SECONDS)

    assert python_calls == [("success", child, "child"), ("success", parent, "parent")]
    assert (status.total, status.children) == (2, 1)


def test_invalidated_jobs_do_not_run_in_ruby(start_ruby: StartRuby, redis_client: redis.Redis) -> None:
    """They are counted; `complete` follows."""
    batch = sidekiq.Batch()
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("write", "ran", 1)
    batch.invalidate()

    start_ruby(program=PROGRAM, queues=["ruby"])

    status = batch.wait(WAIT_SECONDS)
    assert (status.invalidated, status.success) == (1, False)
    assert redis_client.get("ran") is None


def test_ruby_invalidates_the_children_of_children(ruby: RunRuby) -> None:
    """One short script follows another until none is left; a second time there is nothing to do."""
    parent, child, grandchild = sidekiq.Batch(), sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs(), child.jobs(), grandchild.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("write", "ran", 1)

    counts = ruby("batch = SidekiqPy::Batch.new(bid); [batch.invalidate, batch.invalidate]", bid=parent.bid)

    assert counts == [3, 0]
    assert not grandchild.is_valid


def test_a_job_of_a_ruby_process_that_is_killed_runs_again(
    ruby_worker: Any, start_ruby: StartRuby, redis_client: redis.Redis
) -> None:
    """BRPOP leaves it nowhere in Redis, but the mark of its start contains it."""
    batch = sidekiq.Batch()
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("ledger_and_wait_for", "runs", 1, "gate")
    eventually(lambda: redis_client.llen("runs") == 1, WAIT_SECONDS)
    ruby_worker.kill()
    [identity] = redis_client.smembers("sidekiq_py:batches:ruby")
    runs = RubyRuns(away_seconds=0.05)
    pool = sync_client.current().pool
    runs.run(pool)
    assert redis_client.llen("queue:ruby") == 0
    redis_client.delete(identity)
    redis_client.set("gate", 1)

    def is_pushed_again() -> bool:
        runs.run(pool)
        return bool(redis_client.llen("queue:ruby"))

    eventually(is_pushed_again, WAIT_SECONDS)
    start_ruby(program=PROGRAM, queues=["ruby"])

    batch.wait(WAIT_SECONDS, until="success")
    assert redis_client.llen("runs") == 2


def test_a_ruby_process_that_is_killed_between_a_failure_and_its_retry_loses_no_job(
    ruby_worker: Any, start_ruby: StartRuby, redis_client: redis.Redis
) -> None:
    """The failure is counted by then; the mark of its start goes only when the retry is written."""
    batch = sidekiq.Batch()
    redis_client.set("bad", 1)
    with batch.jobs():
        sidekiq.ruby_job("BatchKilledBeforeItsRetry", queue="ruby").perform_async("fail_while", "bad")
    ruby_worker.wait(WAIT_SECONDS)
    assert (batch.status().failures, redis_client.zcard("retry")) == (1, 0)

    redis_client.delete("bad", *redis_client.smembers("sidekiq_py:batches:ruby"))
    start_ruby(program=PROGRAM, queues=["ruby"])
    runs, pool = RubyRuns(away_seconds=0.05), sync_client.current().pool
    eventually(lambda: runs.run(pool) is None and batch.status().success, WAIT_SECONDS)

    status = batch.status()
    assert (status.pending, status.failures) == (0, 0)


@pytest.mark.usefixtures("ruby_worker")
def test_a_failed_ruby_job_leaves_no_mark(redis_client: redis.Redis) -> None:
    """Whether it waits for a retry, is dead, or was thrown away."""
    batch = sidekiq.Batch()
    redis_client.set("bad", 1)
    with batch.jobs():
        for retry in (2, 0, False):
            sidekiq.ruby_job("BatchFailing", queue="ruby", retry=retry).perform_async("fail_while", "bad")

    eventually(lambda: batch.status().dead == 2 and redis_client.zcard("retry") == 1, WAIT_SECONDS)
    eventually(lambda: not redis_client.keys("sidekiq_py:batches:ruby:*"), WAIT_SECONDS)


def test_a_push_in_a_block_does_not_wait_for_a_commit_in_ruby(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """A push after the commit would come after the block, and its job would be in no batch."""
    bid = ruby(
        """
        rails = Object.const_set(:ActiveRecord, Module.new)
        rails.define_singleton_method(:version) { Gem::Version.new("7.2") }
        rails.define_singleton_method(:after_all_transactions_commit) { |&push| }
        gem = Object.const_set(:AfterCommitEverywhere, Module.new)    # what Sidekiq asks before 8
        gem.define_singleton_method(:after_commit) { |&push| }
        waits = Sidekiq.const_defined?(:TransactionAwareClient)    # since 6.5
        BatchDeed.sidekiq_options("client_class" => Sidekiq::TransactionAwareClient) if waits
        batch = SidekiqPy::Batch.new
        batch.jobs { BatchDeed.perform_async("ok") }
        BatchDeed.perform_async("after the commit") if waits
        return batch.bid
        """
    )

    [job] = map(json.loads, redis_client.lrange("queue:ruby", 0, -1))

    assert (job["args"], job["sidekiq_py_batch"]) == (["ok"], [bid, 0])
    assert Batch.find(bid).status().pending == 1


def test_an_active_job_in_a_block_does_not_wait_for_a_commit_in_ruby(
    ruby: RunRuby, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rails 7.2 waits by default with Sidekiq's adapter; the job would then be in no batch."""
    monkeypatch.setenv("FIXTURE_ACTIVE_JOB", "1")
    bid = ruby(
        """
        if ActiveJob.const_defined?(:EnqueueAfterTransactionCommit)
          rails = Object.const_set(:ActiveRecord, Module.new)
          rails.define_singleton_method(:after_all_transactions_commit) { |&push| }
          ActiveJob::Base.include(ActiveJob::EnqueueAfterTransactionCommit)
          ActiveJob::Base.enqueue_after_transaction_commit = :always
          EchoJob.perform_later(0)
        end
        batch = SidekiqPy::Batch.new
        batch.jobs { EchoJob.perform_later(1) }
        return batch.bid
        """
    )

    [job] = map(json.loads, redis_client.lrange("queue:default", 0, -1))

    assert (job["args"][0]["arguments"], job["sidekiq_py_batch"]) == ([1], [bid, 0])


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_with_the_support_file_bears_a_label_and_is_still_ruby() -> None:
    """
    The label tells the doctor which processes have loaded the file. With the label of Python's processes, they would be
    taken for Python: the release to write for would not be detected, and a pause would not name them.
    """
    [process] = eventually(lambda: list(ProcessSet()))

    assert (process.labels, process.is_python) == (("sidekiq_py.rb",), False)


def test_the_support_file_may_be_loaded_twice_and_ruby_warns_of_nothing(
    ruby_release: RubyRelease, redis_url: str
) -> None:
    """Rails loads each initializer, even one that was required before, and Ruby warns of constants defined twice."""
    warnings = run_ruby(
        ruby_release,
        """
        require "stringio"
        $VERBOSE, $stderr = true, StringIO.new
        2.times { load ENV["SIDEKIQ_PY_SUPPORT"] }
        return [SidekiqPy::Batch.name, *$stderr.string.lines.grep(/sidekiq_py/)]
        """,
        redis_url,
    )

    assert warnings == ["SidekiqPy::Batch"]


@pytest.mark.parametrize("first", ["", "-rsidekiq/testing"])
@pytest.mark.parametrize("mode", ["fake", "inline"])
def test_a_block_in_ruby_s_testing_modes_opens_no_batch(
    mode: str, first: str, ruby: RunRuby, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These modes keep jobs out of Redis, so no callback is called, whichever file is loaded first."""
    monkeypatch.setenv("RUBYOPT", first)

    waiting = ruby(
        """
        require "sidekiq/testing"
        Sidekiq::Testing.public_send("#{mode}!")
        batch = SidekiqPy::Batch.new
        batch.on(:complete, BatchDone).on(:success, "BatchDeed")
        batch.jobs { |opened| 2.times { BatchDeed.perform_async("echo", "ran", opened.bid == batch.bid) } }
        return BatchDeed.jobs.size
        """,
        mode=mode,
    )

    assert (waiting, redis_client.llen("ran")) == ((2, 0) if mode == "fake" else (0, 2))
    assert redis_client.keys("queue:*") == redis_client.keys("sidekiq_py:batch*") == []


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_tells_a_class_with_a_callback_method_from_a_job(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """A class without the method is refused at once, as its callback would be retried for three weeks in vain."""
    message = ruby(
        """
        batch = SidekiqPy::Batch.new
        batch.on(:success, {"class" => BatchFailing}, 5)
        batch.jobs { BatchDeed.perform_async("ok") }
        return SidekiqPy::Batch.new.on(:success, BatchDeed)
        rescue ArgumentError => error
        return error.message
        """
    )

    assert message == (
        'BatchDeed has no method on_success; add it or, to enqueue a Sidekiq job, pass {"class" => BatchDeed}'
    )
    eventually(lambda: redis_client.zcard("retry") == 1, WAIT_SECONDS)
    [entry] = RetrySet()
    assert (entry.klass, entry.queue, entry.args[1:]) == ("BatchFailing", "ruby", ["success", 5])


def test_a_module_named_testing_is_not_sidekiq_s(ruby: RunRuby) -> None:
    """`const_defined?` finds global constants, too, so it cannot say whether `Sidekiq::Testing` is loaded."""
    bid = ruby(
        """
        Object.const_set(:Testing, Module.new)
        return SidekiqPy::Batch.new.jobs { BatchDeed.perform_async("ok") }.bid
        """
    )

    assert sidekiq.Batch.find(bid).status().total == 1


def test_ruby_s_errors_name_the_batch(ruby: RunRuby) -> None:
    """As Python's do."""
    batch = sidekiq.Batch()
    with batch.jobs():
        pass

    errors = ruby(
        """
        gone = begin
          SidekiqPy::Batch.new("nosuch").jobs {}
        rescue SidekiqPy::Batch::Gone => error
          error.message
        end
        done = begin
          SidekiqPy::Batch.new(bid).jobs {}
        rescue SidekiqPy::Batch::Done => error
          error.message
        end
        return [gone, done]
        """,
        bid=batch.bid,
    )

    assert errors == [str(BatchGoneError("nosuch")), str(BatchDoneError(batch.bid))]


def test_a_block_in_ruby_goes_on_if_redis_has_lost_its_numbers(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """As in Python: numbers that nobody has are kept, and a push whose numbers another program has got is refused."""
    bid, message = ruby(
        """
        batch = SidekiqPy::Batch.new
        key = "sidekiq_py:batch:#{batch.bid}"
        forget = lambda do
          Sidekiq.redis do |conn|
            conn.del("#{key}:blocks", "queue:ruby")
            %w[next total pending untried].each { |field| conn.hset(key, field, "0") }
          end
        end
        message = nil
        batch.jobs do
          BatchDeed.perform_async("forgotten")
          forget.call
          BatchDeed.perform_async("kept")
          forget.call
          Thread.new { SidekiqPy::Batch.new(batch.bid).jobs { 3.times { BatchDeed.perform_async("other") } } }.join
          begin
            BatchDeed.perform_async("refused")
          rescue SidekiqPy::Batch::RolledBack => error
            message = error.message
          end
          BatchDeed.perform_async("ok")
        end
        return [batch.bid, message]
        """
    )

    assert message == str(BatchRolledBackError(bid))
    jobs = queued_jobs(redis_client, "ruby")
    assert [job["args"] for job in jobs] == [["other"]] * 3 + [["ok"]]
    assert len({job["sidekiq_py_batch"][1] for job in jobs}) == 4
    assert sidekiq.Batch.find(bid).status().total == 4


def test_killed_ruby_processes_leave_no_batch_waiting(
    ruby_worker: Any, start_ruby: StartRuby, redis_client: redis.Redis
) -> None:
    """What they ran is pushed again, and what BRPOP has lost is found by the audit: no batch hangs."""
    deed = sidekiq.ruby_job("BatchDeed", queue="ruby")
    batches = [sidekiq.Batch(callback_queue="callbacks").on("complete", "BatchDone#on_complete") for _ in range(5)]
    for batch in batches:
        with batch.jobs():
            deed.perform_bulk([["sleep", 0.01]] * 60)
    pool = sync_client.current().pool
    runs, audit = RubyRuns(away_seconds=0.05), Audit(quiet_seconds=-1)
    worker = ruby_worker
    for done in (60, 150):
        eventually(lambda done=done: redis_client.llen("queue:ruby") < 300 - done, WAIT_SECONDS)
        worker.kill()
        for identity in redis_client.smembers("sidekiq_py:batches:ruby"):
            redis_client.delete(identity)
        worker = start_ruby(program=PROGRAM, queues=["ruby"])

    def is_settled() -> bool:
        runs.run(pool)
        if redis_client.llen("queue:ruby") or redis_client.hlen(f"sidekiq_py:batches:ruby:{living()}"):
            return False
        audit.run(pool)
        return all(batch.status().complete for batch in batches)

    def living() -> str:
        return str(redis_client.srandmember("processes").decode())

    eventually(is_settled, WAIT_SECONDS, every_seconds=0.2)
    lost = sum(batch.status().lost for batch in batches)
    assert lost <= 20
    assert redis_client.llen("queue:callbacks") == len(batches)
    assert sum(batch.status().pending for batch in batches) == lost


@pytest.mark.usefixtures("ruby_worker")
def test_rows_of_jobs_in_both_languages(ruby: RunRuby, python_calls: list[Any], redis_client: redis.Redis) -> None:
    """Of a batch that Ruby opens: each has its row, and each language says how its jobs end."""
    redis_client.set("broken", 1)
    bid = ruby(
        """
        batch = SidekiqPy::Batch.new
        batch.track = true
        batch.jobs do
          BatchDeed.perform_async("ok", 1)
          BatchFragile.perform_async("fail_while", "broken")
          Sidekiq::Client.push_bulk("class" => "python_deed", "queue" => "python", "args" => [[1], [2]])
          BatchDeed.perform_in(3600, "ok")
        end
        return batch.bid
        """
    )
    batch = Batch.find(bid)

    with sidekiq.embed(queues=["python"]):
        eventually(lambda: batch.rows.counts()["finished"] == 3 and batch.rows.counts()["dead"] == 1, WAIT_SECONDS)

    rows = list(batch.rows)
    assert [(row.klass, row.args) for row in rows] == [
        ("BatchDeed", ["ok", 1]),
        ("BatchFragile", ["fail_while", "broken"]),
        ("python_deed", [1]),
        ("python_deed", [2]),
        ("BatchDeed", ["ok"]),
    ]
    assert [row.attempts for row in rows] == [1, 1, 1, 1, 0]
    assert rows[1].error is not None
    assert rows[1].error["error_message"] == "no e-mail"
    assert (rows[4].state, rows[4].scheduled_at is None) == ("enqueued", False)
    redis_client.delete("broken")
    assert batch.retry_failed() == 1
    eventually(lambda: batch.rows.counts()["finished"] == 4, WAIT_SECONDS)


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_job_of_no_batch_says_that_its_input_is_bad(redis_client: redis.Redis) -> None:
    """It dies at once, as in Python, and is no failure to retry for three weeks."""
    sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("refuse", "no e-mail")

    eventually(lambda: redis_client.zcard("dead") or redis_client.zcard("retry"), WAIT_SECONDS)

    [entry] = DeadSet()
    assert (entry.error_class, entry.error_message) == ("SidekiqPy::JobFailed", "no e-mail")


def test_a_death_handler_that_raises_does_not_bring_a_refused_job_back(
    start_ruby: StartRuby, redis_client: redis.Redis
) -> None:
    """As in Sidekiq: the error is logged, the other handlers are called, and the job stays in the dead set."""
    start_ruby(program=PROGRAM, queues=["ruby", "default"], environment={"FIXTURE_BAD_HANDLER": "1"})

    sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("refuse", "no e-mail")

    eventually(lambda: redis_client.zcard("retry") or redis_client.llen("died"), WAIT_SECONDS)
    assert (redis_client.zcard("retry"), redis_client.zcard("dead"), redis_client.llen("died")) == (0, 1, 1)


def test_a_refused_ruby_job_that_is_not_to_be_kept_is_discarded(
    start_ruby: StartRuby, redis_client: redis.Redis
) -> None:
    """`dead: false` means that in both languages, and for each other job that is not retried."""
    start_ruby(program=PROGRAM, queues=["ruby", "default"], environment={"FIXTURE_BAD_HANDLER": "1"})

    sidekiq.ruby_job("BatchDeed", queue="ruby", dead=False).perform_async("refuse", "no e-mail")

    eventually(lambda: redis_client.llen("died"), WAIT_SECONDS)
    assert (redis_client.zcard("dead"), redis_client.zcard("retry")) == (0, 0)


@pytest.mark.parametrize("name", ["RefusingActiveJob", "RefusingDiscardedActiveJob"])
def test_an_active_job_in_ruby_says_that_its_input_is_bad_whatever_retry_on_covers(
    name: str, start_ruby: StartRuby, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`retry_on StandardError` does not run it again, and `discard_on StandardError` does not make it a success."""
    monkeypatch.setenv("FIXTURE_ACTIVE_JOB", "1")
    start_ruby(program=PROGRAM, queues=["default"])

    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        perform_later(name, "no e-mail")

    eventually(lambda: batch.status().dead == 1, WAIT_SECONDS)
    [row] = batch.rows.page("failed").rows
    [entry] = DeadSet()
    assert (row.klass, entry.error_class, entry.error_message) == (name, "SidekiqPy::JobFailed", "no e-mail")
    assert redis_client.zcard("schedule") == 0


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_job_says_that_its_input_is_bad(redis_client: redis.Redis) -> None:
    """It dies at once, whatever its retries, and its row says `failed`."""
    batch = sidekiq.Batch(track=True)
    batch.on("death", "BatchDone#on_death")
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="ruby").perform_async("refuse", "row 3 has no e-mail")

    batch.wait(WAIT_SECONDS)

    [row] = batch.rows.page("failed").rows
    assert row.error is not None
    assert (row.error["error_message"], row.attempts) == ("row 3 has no e-mail", 1)
    eventually(lambda: callbacks(redis_client), WAIT_SECONDS)
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 1)
    assert batch.retry_failed() == 1
    eventually(lambda: batch.rows.page("failed").rows and batch.rows.page("failed").rows[0].attempts == 2, WAIT_SECONDS)


@pytest.mark.usefixtures("ruby_worker")
def test_a_full_redis_loses_no_job_of_a_batch_in_ruby(redis_client: redis.Redis) -> None:
    """Redis refuses the mark of a job's start then. It would refuse a retry as well, so the job runs unmarked."""
    batch = sidekiq.Batch().on("success", "BatchDone#on_success")
    with batch.jobs():
        sidekiq.ruby_job("BatchDeed", queue="later").perform_bulk([["ok"]] * 5)
    redis_client.config_set("maxmemory", 1)
    try:
        redis_client.rename("queue:later", "queue:ruby")
        batch.wait(WAIT_SECONDS, until="success")
    finally:
        redis_client.config_set("maxmemory", 0)

    assert batch.status().total == 5
