"""
Workflows that go on in Ruby, up to where Ruby takes over.

No Ruby runs here: what lies in its queue is all that it would be given, and it knows its own classes alone.
"""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, _state, chain, chord, group, signals, signature

from sidekiq_py import program, ruby_job
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

RUBY_QUEUE = "queue:ruby"

double = ruby_job("StepDouble", queue="ruby")

Body = Callable[[SimpleNamespace], Any]

# fmt: off
BODIES: dict[str, tuple[Body, int]] = {
    "a step": (lambda t: double.s(), 1),
    "a chain that begins with one": (lambda t: double.s() | t.add.s(1), 1),
    "a group that begins with one": (lambda t: group(double.s(), t.total.s()), 1),
    "a group that ends with one": (lambda t: group(t.total.s(), double.s()), 1),
    "a group of chains": (lambda t: group(double.s() | t.add.s(1), double.s() | t.add.s(2)), 2),
    "a chord of them": (lambda t: chord([double.s(), double.s()], t.same.s()), 2),
    "a chord whose body is one": (lambda t: chord([t.total.s(), t.same.s()], double.s()), 1),
    "a step that is known by its name alone": (lambda t: group(signature("StepDouble", queue="ruby")), 1),
}
# fmt: on


@pytest.fixture(autouse=True)
def current(app: Celery) -> Iterator[None]:
    """Ruby's steps belong to no app but the current one."""
    before = _state._tls.current_app
    app.set_current()
    yield
    _state._tls.current_app = before


@pytest.fixture(params=["nobody", "a signal", "client middleware"])
def listener(request: pytest.FixtureRequest) -> Iterator[str]:
    """Who listens to pushes: where somebody does, bodies are called by a task of ours."""

    def pass_on(job: Any, payload: Any, queue: str, call_next: Callable[[], Any]) -> Any:
        return call_next()

    def hear(**about: Any) -> None:
        pass

    if request.param == "a signal":
        signals.before_task_publish.connect(hear)
    elif request.param == "client middleware":
        program.client_middleware.add(pass_on)
    yield request.param
    signals.before_task_publish.disconnect(hear)
    if request.param == "client middleware":
        program.client_middleware.remove(pass_on)


def classes_in(client: redis.Redis, queue: str) -> list[str]:
    """Of the jobs that wait there."""
    return [json.loads(text)["class"] for text in client.lrange(queue, 0, -1)]


def report_for_ruby(client: redis.Redis, text: bytes, state: str, result: Any) -> None:
    """Go on behind a step as Ruby does."""
    step = json.loads(text)
    task_headers = step["celery"]
    report = {
        "class": task_headers["report"]["class"],
        "queue": task_headers["report"]["queue"],
        "jid": f"report of {step['jid']}",
        "retry": True,
        "args": [step["class"], step["jid"], task_headers, state, result],
        "celery": {"parent_id": step["jid"], "root_id": task_headers.get("root_id", step["jid"])},
    }
    client.lpush(f"queue:{report['queue']}", json.dumps(report))


@pytest.mark.parametrize("name", BODIES)
def test_ruby_is_given_its_own_steps_of_a_body_alone(
    running: SimpleNamespace, redis_client: redis.Redis, listener: str, name: str
) -> None:
    """Called with the results of the header; our own tasks stay with Python's workers."""
    body, steps = BODIES[name]
    chord([running.add.s(1, 1), running.add.s(3, 1)], body(running)).apply_async()

    eventually(lambda: redis_client.llen(RUBY_QUEUE) == steps)
    assert classes_in(redis_client, RUBY_QUEUE) == ["StepDouble"] * steps


@pytest.mark.parametrize("name", [name for name in BODIES if "by its name" not in name])
def test_a_body_in_ruby_fails_with_its_header(running: SimpleNamespace, redis_client: redis.Redis, name: str) -> None:
    """By a task of ours that Ruby never sees."""
    body, _ = BODIES[name]
    result = chord([running.boom.s(), running.add.s(3, 1)], body(running)).apply_async()

    for each in getattr(result, "results", None) or [result]:
        eventually(lambda each=each: each.state == "FAILURE")  # type: ignore[misc]
    assert not redis_client.exists(RUBY_QUEUE)


def test_a_chord_behind_a_step_that_fails_fails_without_ruby(
    running: SimpleNamespace, redis_client: redis.Redis
) -> None:
    """Its body is a chain that begins in Ruby, and it is never called."""
    inner = chain(running.boom.s(), running.add.s(1))
    result = chord([inner, running.add.s(3, 1)], double.s() | running.add.s(1)).apply_async()

    eventually(lambda: result.state == "FAILURE")
    assert not redis_client.exists(RUBY_QUEUE)


@pytest.mark.parametrize(("state", "outcome"), [("SUCCESS", 5), ("FAILURE", {"exc_type": "E", "exc_message": ["no"]})])
def test_a_part_in_ruby_calls_or_fails_a_body_in_ruby(
    running: SimpleNamespace, redis_client: redis.Redis, state: str, outcome: Any
) -> None:
    """Where its report came in, Python goes on."""
    result = chord([double.s(1)], double.s() | running.add.s(1)).apply_async()
    part = redis_client.rpop(RUBY_QUEUE)

    report_for_ruby(redis_client, part, state, outcome)

    if state == "SUCCESS":
        eventually(lambda: classes_in(redis_client, RUBY_QUEUE) == ["StepDouble"])
        assert json.loads(redis_client.lindex(RUBY_QUEUE, 0))["args"] == [[5]]
    else:
        eventually(lambda: result.state == "FAILURE")
        assert not redis_client.exists(RUBY_QUEUE)


def test_links_to_ruby(running: SimpleNamespace, redis_client: redis.Redis, listener: str) -> None:
    """A callback is called with the result, an errback with the id of the task that failed."""
    running.add.s(1, 1).apply_async(link=double.s())
    eventually(lambda: redis_client.llen(RUBY_QUEUE) == 1)
    callback = json.loads(redis_client.rpop(RUBY_QUEUE))

    running.boom.s().apply_async(task_id="failed", link_error=double.s())
    eventually(lambda: redis_client.llen(RUBY_QUEUE) == 1)
    errback = json.loads(redis_client.rpop(RUBY_QUEUE))

    assert (callback["class"], callback["args"]) == ("StepDouble", [2])
    assert (errback["class"], errback["args"]) == ("StepDouble", ["failed"])


def test_a_chord_as_a_link_goes_on_in_ruby(running: SimpleNamespace, redis_client: redis.Redis) -> None:
    """Its body like any other."""
    running.add.s(1, 1).apply_async(link=chord([running.add.s(1)], double.s() | running.add.s(1)))

    eventually(lambda: redis_client.llen(RUBY_QUEUE) == 1)
    assert json.loads(redis_client.lindex(RUBY_QUEUE, 0))["args"] == [[3]]


def test_a_body_in_ruby_is_called_where_the_last_part_ran(
    app: Celery, tasks: SimpleNamespace, redis_url: str, redis_client: redis.Redis
) -> None:
    """That queue has a Python worker; the default one need not."""
    worker = TaskWorker(app, redis_url, ("parts",))
    worker.start()
    part = tasks.add.s(1, 1).set(queue="parts")
    chord([part, part.clone()], double.s() | tasks.add.s(1)).apply_async()

    eventually(lambda: redis_client.llen(RUBY_QUEUE) == 1)
    worker.stop()
    assert not redis_client.exists("queue:celery")


def test_a_body_in_python_is_called_where_it_runs(running: SimpleNamespace, redis_client: redis.Redis) -> None:
    """Behind nothing that waits where its header ran, and with a priority of its own."""
    running.add._get_app().conf.task_inherit_parent_priority = True
    body = running.total.s().set(queue="late", priority=3) | running.add.s(1)
    chord([running.add.s(1, 1), running.add.s(3, 1)], body).apply_async()

    eventually(lambda: redis_client.llen("queue:late") == 1)
    assert classes_in(redis_client, "queue:late") == ["celery.chord_start"]


def test_the_last_step_of_a_chain_has_nothing_to_report_to(app: Celery, redis_client: redis.Redis) -> None:
    """Any key `chain`, even an empty one, would make Ruby enqueue a job that continues the workflow."""
    chain(double.s(1)).apply_async()

    [job] = redis_client.lrange(RUBY_QUEUE, 0, -1)
    assert "chain" not in json.loads(job)["celery"]


def test_reports_of_ruby_follow_routes(app: Celery, redis_client: redis.Redis) -> None:
    """Where no worker serves the default queue."""
    app.conf.task_routes = {"celery.step_ended": {"queue": "reports"}}

    double.s(1).apply_async()

    assert json.loads(redis_client.lindex(RUBY_QUEUE, 0))["celery"]["report"]["queue"] == "reports"


def test_a_step_goes_to_the_queue_to_which_the_job_is_pushed(app: Celery, redis_client: redis.Redis) -> None:
    """A Ruby job without a queue of its own has that of `default_job_options`, in a workflow as elsewhere."""
    program.configure(default_job_options={"queue": "ruby"})

    ruby_job("Bare").s().apply_async()
    ruby_job("Own", queue="own").s().apply_async()

    assert classes_in(redis_client, RUBY_QUEUE) == ["Bare"]
    assert classes_in(redis_client, "queue:own") == ["Own"]
