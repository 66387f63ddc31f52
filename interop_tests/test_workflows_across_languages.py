"""Workflows whose steps run in Python and in real Ruby."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, _state, chain, chord, group, signals
from sidekiq_celery.exceptions import ChordError

import sidekiq_py as sidekiq
from interop_tests.conftest import StartRuby
from interop_tests.support.ruby import RubyRelease, run_ruby
from sidekiq_py import program, ruby_job
from sidekiq_py.cli import ruby_support
from sidekiq_py.client.sync_client import Client
from tests.compat.canvas.tasks import declare
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

WAIT_SECONDS = 60
PROGRAM = "celery_steps.rb"
# What the file of that release leaves: a method that the file of this one replaces, among the death handlers.
FILE_OF_0_1 = """
SidekiqCelery.define_singleton_method(:died) do |payload, error|
  report(payload, "FAILURE", {"exc_type" => error.class.name, "exc_message" => [], "exc_module" => nil})
end
Sidekiq.configure_server { |config| config.death_handlers.replace([SidekiqCelery.method(:died)]) }
"""

double = ruby_job("StepDouble")
fails = ruby_job("StepFails", retry=0)


@pytest.fixture
def app(ruby_release: RubyRelease, redis_url: str) -> Iterator[Celery]:
    """An app with results on the broker's Redis, whose jobs are written as the release at hand writes them."""
    known = dict(_state._on_app_finalizers)
    before = _state._tls.current_app, _state._latest_current
    one = Celery("proj", broker=redis_url, backend=redis_url, fixups=[])
    one.conf.task_allow_error_cb_on_chord_header = True
    with Client.via(Client(redis_url, sidekiq_version=ruby_release.sidekiq_version)):
        yield one
    one.backend._pool.close()
    one.close()
    _state._tls.current_app, _state._latest_current = before
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(known)


@pytest.fixture
def tasks(app: Celery, redis_url: str) -> Iterator[SimpleNamespace]:
    """Python's tasks, and a worker for them."""
    declared = declare(app)
    worker = TaskWorker(app, redis_url)
    worker.start()
    yield declared
    worker.stop()


@pytest.fixture
def ruby_worker(start_ruby: StartRuby) -> None:
    """Ruby's worker."""
    start_ruby(program=PROGRAM)


def state_of(client: redis.Redis, task_id: str) -> Any:
    """Of a result."""
    return json.loads(client.get(f"celery-task-meta-{task_id}") or b"{}").get("status")


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_between_two_in_python(tasks: SimpleNamespace, app: Celery) -> None:
    """It is called with the result of the previous step, and its own result goes to the next one."""
    result = chain(tasks.add.s(1, 2), double.s(10), tasks.add.s(100)).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == 126
    assert result.parent.get(timeout=WAIT_SECONDS) == 26


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_steps_one_after_the_other(tasks: SimpleNamespace, app: Celery) -> None:
    """A chain may begin and end with them."""
    result = chain(double.s(1), double.s(1), double.s(1)).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == 14


def test_a_ruby_job_of_its_own_has_a_result(app: Celery, redis_client: redis.Redis, start_ruby: StartRuby) -> None:
    """Ruby writes it without a Python worker, and not by SETEX, of which Sidekiq warns since 7.0."""
    worker = start_ruby(program=PROGRAM)
    result = double.s(4).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == 8
    assert redis_client.ttl(f"celery-task-meta-{result.id}") > 0
    assert "deprecated" not in worker.log


@pytest.mark.usefixtures("ruby_worker", "tasks")
def test_a_step_writes_its_result_only_where_results_are(app: Celery, redis_client: redis.Redis) -> None:
    """Its payload names the key: whoever may push could otherwise have Ruby overwrite `schedule` or a queue."""
    redis_client.zadd("schedule", {"{}": 4e9})
    report = {"class": "celery.step_ended", "queue": app.conf.task_default_queue, "key": "schedule"}
    step = {"class": "StepDouble", "args": [4], "jid": "schedule", "queue": "default", "celery": {"report": report}}
    redis_client.lpush("queue:default", json.dumps({**step, "retry": False, "created_at": 1.5, "enqueued_at": 1.5}))

    assert app.AsyncResult("schedule").get(timeout=WAIT_SECONDS) == 8
    assert redis_client.type("schedule") == b"zset"


def test_middleware_that_is_loaded_after_the_file_for_steps_does_not_hide_results(
    app: Celery, start_ruby: StartRuby
) -> None:
    """The result is what `perform` returns, whatever middleware returns: that of sidekiq-status returns nil."""
    start_ruby(program=PROGRAM, environment={"FIXTURE_SILENT": "1"})

    assert double.s(4).apply_async().get(timeout=WAIT_SECONDS) == 8


@pytest.mark.releases(since="7.3")
def test_a_capsule_with_middleware_of_its_own_reports_steps(app: Celery, start_ruby: StartRuby) -> None:
    """Its chain is a copy, made when it was configured, and has nothing that is added to the original at startup."""
    start_ruby(program=PROGRAM, environment={"FIXTURE_CAPSULE": "1"})

    assert ruby_job("StepDouble", queue="own").s(4).apply_async().get(timeout=WAIT_SECONDS) == 8


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_steps_in_a_group(tasks: SimpleNamespace, app: Celery) -> None:
    """Together with tasks."""
    result = group([tasks.add.s(1, 1), double.s(1), double.s(2)]).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == [2, 2, 4]


@pytest.mark.usefixtures("ruby_worker")
def test_ruby_steps_in_a_chord(tasks: SimpleNamespace, app: Celery) -> None:
    """As parts of its header, and as its body, which is called with the list of results."""
    header = [tasks.add.s(1, 1), double.s(2), chain(tasks.add.s(1, 1), double.s())]

    in_python = chord(header, tasks.same.s()).apply_async()
    in_ruby = chord(header, double.s()).apply_async()

    assert in_python.get(timeout=WAIT_SECONDS) == [2, 4, 4]
    assert in_ruby.get(timeout=WAIT_SECONDS) == 20


@pytest.mark.usefixtures("ruby_worker")
def test_bodies_that_begin_in_ruby(tasks: SimpleNamespace, app: Celery) -> None:
    """Of any shape, behind a header in Python or in Ruby; also while a signal has a receiver for what is sent."""
    header = [tasks.add.s(1, 1), tasks.add.s(3, 1)]

    def hear(**about: Any) -> None:
        pass

    called = {
        "a chain": (chain(group(header), double.s(), tasks.add.s(1)), 13),
        "a chain behind Ruby": (chord([double.s(1), double.s(2)], double.s() | tasks.add.s(1)), 13),
        "a group": (chord(header, group(double.s(), tasks.total.s())), [12, 6]),
        "a chord": (chord(header, chord([double.s(), double.s()], tasks.total.s())), 24),
    }
    results = {name: (canvas.apply_async(), wanted) for name, (canvas, wanted) in called.items()}
    signals.before_task_publish.connect(hear)
    try:
        results["a step that is heard of"] = (chord(header, double.s()).apply_async(), 12)
        for result, wanted in results.values():
            assert result.get(timeout=WAIT_SECONDS) == wanted
    finally:
        signals.before_task_publish.disconnect(hear)


@pytest.mark.usefixtures("ruby_worker")
def test_bodies_in_ruby_fail_with_their_headers(tasks: SimpleNamespace, app: Celery) -> None:
    """Wherever the part that fails runs, Python fails the body, and Ruby's class is never called."""
    bodies = {"a step": double.s(), "a chain": double.s() | tasks.add.s(1), "a chord": chord([double.s()], double.s())}

    for part in (tasks.boom.s(), fails.s()):
        for body in bodies.values():
            result = chord([part.clone(), tasks.add.s(1, 1)], body.clone()).apply_async()
            eventually(lambda result=result: result.state == "FAILURE")  # type: ignore[misc]
            assert isinstance(result.result, ChordError)


@pytest.mark.usefixtures("ruby_worker")
def test_callbacks_of_a_ruby_step(tasks: SimpleNamespace, app: Celery) -> None:
    """They are called with its result."""
    double.s(2).apply_async(link=tasks.add.s(1).set(task_id="callback"))

    assert app.AsyncResult("callback").get(timeout=WAIT_SECONDS) == 5


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_as_a_callback(tasks: SimpleNamespace, app: Celery) -> None:
    """It is called with the result, and then its own callbacks are called."""
    tasks.add.s(1, 1).apply_async(link=double.s(1).set(task_id="in Ruby", link=tasks.add.s(1).set(task_id="behind")))

    assert app.AsyncResult("in Ruby").get(timeout=WAIT_SECONDS) == 6
    assert app.AsyncResult("behind").get(timeout=WAIT_SECONDS) == 7


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_that_fails_for_good_ends_the_chain(
    tasks: SimpleNamespace, app: Celery, redis_client: redis.Redis
) -> None:
    """Its error has the name of Ruby's class, and the last step of the chain fails too."""
    result = chain(tasks.add.s(1, 1), fails.s(), tasks.add.s(1).set(task_id="last")).apply_async()

    with pytest.raises(Exception, match="no") as raised:
        result.get(timeout=WAIT_SECONDS)
    assert type(raised.value).__name__ == "FixtureError"
    eventually(lambda: state_of(redis_client, "last") == "FAILURE")


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_that_fails_for_good_fails_its_chord(
    tasks: SimpleNamespace, app: Celery, redis_client: redis.Redis
) -> None:
    """Like any other part."""
    body = tasks.total.s().set(task_id="body")
    chord([tasks.add.s(1, 1), fails.s()], body).apply_async()

    eventually(lambda: state_of(redis_client, "body") == "FAILURE")
    assert isinstance(app.AsyncResult("body").result, ChordError)


@pytest.mark.usefixtures("ruby_worker")
@pytest.mark.parametrize("what", ["NaN", "bytes", "binary"])
def test_a_ruby_step_whose_result_is_not_json_fails_its_workflow_at_once(
    tasks: SimpleNamespace, app: Celery, redis_client: redis.Redis, what: str
) -> None:
    """A retry would do its work again and fail again, for three weeks by default."""
    result = chain(ruby_job("StepReturns").s(what), tasks.add.s(1)).apply_async()

    with pytest.raises(Exception, match="what StepReturns returned is not JSON"):
        result.get(timeout=WAIT_SECONDS)
    assert redis_client.get("runs") == b"1"
    assert redis_client.zcard("retry") == 0


@pytest.mark.releases(since="7.3")
@pytest.mark.usefixtures("ruby_worker")
def test_an_iterable_job_in_ruby_is_a_step_without_a_result(
    tasks: SimpleNamespace, app: Celery, redis_client: redis.Redis
) -> None:
    """Its run returns Redis's reply to the deletion of its position, 0 or 1, which the next step must not get."""
    result = chain(ruby_job("StepIterates").s(3), tasks.same.s()).apply_async()

    assert result.get(timeout=WAIT_SECONDS) is None
    assert redis_client.get("runs") == b"3"


def test_ruby_jobs_with_a_celery_key_of_their_own_are_no_steps(
    app: Celery, start_ruby: StartRuby, redis_client: redis.Redis, redis_url: str
) -> None:
    """Other programs may use that key. An error about it, after the job's work, would have the work done again."""
    start_ruby(program=PROGRAM, concurrency=1)
    for value in (True, 5, "a text", ["a list"], {"report": "weekly"}, {"report": {"a": 1}}):
        Client(redis_url).push({"class": "StepReturns", "args": ["NaN"], "celery": value})

    after = double.s(4).apply_async()

    assert after.get(timeout=WAIT_SECONDS) == 8
    assert (redis_client.get("runs"), redis_client.zcard("retry")) == (b"6", 0)
    assert not redis_client.exists("queue:")


@pytest.mark.releases(since="7")
@pytest.mark.usefixtures("ruby_worker")
@pytest.mark.parametrize(("name", "retry"), [("StepIsDiscarded", 5), ("StepIsDiscardedInTheEnd", 0)])
def test_a_ruby_step_that_is_discarded_fails_its_workflow(
    tasks: SimpleNamespace, app: Celery, name: str, retry: int
) -> None:
    """Until 8.0.7 Sidekiq calls no death handler for it, so the file for steps reports its end itself."""
    result = chain(ruby_job(name, retry=retry).s(1), tasks.add.s(1)).apply_async()

    with pytest.raises(Exception, match="no"):
        result.get(timeout=WAIT_SECONDS)


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_may_fail_with_a_message_that_is_not_utf_8(tasks: SimpleNamespace, app: Celery) -> None:
    """JSON takes no other bytes, so they are replaced: without a report, the workflow would wait forever."""
    result = chain(ruby_job("StepFailsWithBytes", retry=0).s(), tasks.add.s(1)).apply_async()

    with pytest.raises(Exception, match=r"caf\?"):
        result.get(timeout=WAIT_SECONDS)


@pytest.fixture
def batches(redis_url: str, ruby_release: RubyRelease, tmp_path: Path, start_ruby: StartRuby) -> Iterator[None]:
    """Ruby's worker has loaded the file for batches, and this program can open them."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)
    support = tmp_path / "sidekiq_py.rb"
    support.write_text(ruby_support.text())
    start_ruby(program=PROGRAM, environment={"SIDEKIQ_PY_SUPPORT": str(support)})
    yield
    program.reset()


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("ignores_result", [False, True])
def test_a_batch_waits_for_what_follows_a_ruby_step(tasks: SimpleNamespace, app: Celery, ignores_result: bool) -> None:
    """The rest of the workflow joins the batch, so `success` comes only after the last step."""
    batch = sidekiq.Batch()
    steps = [tasks.add.s(1, 2), double.s(10), double.s(), tasks.add.s(100)]
    with batch.jobs():
        result = chain(*(step.set(ignore_result=ignores_result and step is not steps[-1]) for step in steps)).delay()

    status = batch.wait(WAIT_SECONDS, until="success")

    assert (status.total, status.pending) == (6, 0)
    assert result.get(timeout=WAIT_SECONDS) == 152


@pytest.mark.usefixtures("batches")
def test_a_batch_waits_for_the_errbacks_of_a_ruby_step(tasks: SimpleNamespace, app: Celery) -> None:
    """The step is dead, the job that fails the rest of its chain has succeeded, and nobody is still adding."""
    batch = sidekiq.Batch()
    with batch.jobs():
        result = chain(fails.s(), tasks.add.s(1)).delay()

    with pytest.raises(Exception, match="no"):
        result.get(timeout=WAIT_SECONDS)

    # It was already complete when the step's only attempt failed; what follows the step has joined it since then.
    batch.wait(WAIT_SECONDS, until="complete")

    def is_as_said() -> bool:
        status = batch.status()
        return (status.total, status.pending, status.dead, list(status.openers)) == (2, 1, 1, [])

    eventually(is_as_said, WAIT_SECONDS)
    assert batch.status().state == "complete"


@pytest.mark.usefixtures("ruby_worker")
def test_a_ruby_step_that_is_killed_in_a_web_process_fails_its_workflow(
    tasks: SimpleNamespace, ruby_release: RubyRelease, redis_client: redis.Redis, redis_url: str
) -> None:
    """The Web UI's button calls the death handlers of its own process, so web processes need the file, too."""
    result = chain(ruby_job("StepFails", retry=5).s(), tasks.add.s(1)).apply_async()
    eventually(lambda: redis_client.zcard("retry") == 1, WAIT_SECONDS)

    run_ruby(ruby_release, "Sidekiq::RetrySet.new.each(&:kill)\nreturn", redis_url, also=[PROGRAM])

    with pytest.raises(Exception, match="Job killed by API"):
        result.get(timeout=WAIT_SECONDS)


@pytest.mark.parametrize("loaded", ["", FILE_OF_0_1], ids=["this release's", "0.1's"])
def test_a_ruby_step_fails_once_if_the_file_for_batches_is_loaded_too(
    app: Celery, start_ruby: StartRuby, redis_client: redis.Redis, tmp_path: Path, loaded: str
) -> None:
    """That file contains the file for steps. If both reported the end, errbacks would be called twice."""
    support = tmp_path / "sidekiq_py.rb"
    support.write_text(loaded + ruby_support.text())
    start_ruby(program=PROGRAM, concurrency=1, environment={"SIDEKIQ_PY_SUPPORT": str(support)})

    chain(fails.s(), app.signature("last")).apply_async()
    after = double.s(1).apply_async()

    assert after.get(timeout=WAIT_SECONDS) == 2
    ended = [json.loads(job)["class"] for job in redis_client.lrange("queue:celery", 0, -1)]
    assert ended == ["celery.step_ended"]


def test_a_ruby_step_takes_no_keyword_arguments(app: Celery) -> None:
    """They are rejected when it is sent."""
    from kombu.exceptions import EncodeError

    with pytest.raises(EncodeError, match="no keyword arguments"):
        double.s().apply_async(kwargs={"amount": 1})


def test_a_ruby_step_keeps_its_options(app: Celery, redis_client: redis.Redis) -> None:
    """The options of `ruby_job` are in its payload, and it goes to its queue."""
    ruby_job("Import", queue="imports", retry=7, tags=["x"]).si(1).apply_async()

    payload = json.loads(redis_client.lindex("queue:imports", 0))
    assert (payload["class"], payload["args"], payload["retry"], payload["tags"]) == ("Import", [1], 7, ["x"])
    assert payload["celery"]["report"]["queue"] == "celery"
    assert os.path.basename(payload["celery"]["report"]["key"]) == f"celery-task-meta-{payload['jid']}"
