"""Details of workflows that are as in Celery, found by comparing random canvases."""

import json
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, chain, chord
from sidekiq_celery.exceptions import ChordError

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually


@pytest.fixture
def seen(app: Celery) -> list[Any]:
    """Which task ran with which parent and nesting."""
    seen: list[Any] = []

    @app.task(name="proj.step", bind=True)
    def step(self: Any, *args: Any, k: str) -> str:
        seen.append((k, self.request.id, self.request.parent_id, self.request.replaced_task_nesting))
        return k

    @app.task(name="proj.replaced", bind=True)
    def replaced(self: Any) -> Any:
        return self.replace(app.signature("proj.step", kwargs={"k": "instead"}))

    @app.task(name="proj.fails")
    def fails(*args: Any) -> None:
        raise ValueError("boom")

    return seen


def test_steps_behind_a_replaced_one_know_how_deep_that_was(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """`replaced_task_nesting` is passed on to the end of the chain, through a chord."""
    step = app.tasks["proj.step"]
    worker.start()

    chain(
        app.tasks["proj.replaced"].si(),
        step.s(k="next"),
        chord([step.s(k="part")], step.s(k="body")),
        step.s(k="last"),
    ).apply_async().get(timeout=20)

    assert [(k, nesting) for k, _, _, nesting in seen if k in ("instead", "next", "part")] == [
        ("instead", 1),
        ("next", 1),
        ("part", 1),
    ]


def test_a_body_that_is_a_chain_is_the_child_of_a_part(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """Not of the job by which it is called."""
    step = app.tasks["proj.step"]
    worker.start()

    chord([step.s(k="part")], chain(step.s(k="first"), step.s(k="second"))).apply_async().get(timeout=20)

    ids = {k: task_id for k, task_id, _, _ in seen}
    assert {k: parent for k, _, parent, _ in seen if k != "part"} == {"first": ids["part"], "second": ids["first"]}


def test_the_body_of_a_chord_behind_a_step_is_the_child_of_a_part(
    app: Celery, worker: TaskWorker, seen: list[Any]
) -> None:
    """Not of the step that has sent the chord."""
    step = app.tasks["proj.step"]
    worker.start()

    chain(step.si(k="before"), chord([step.si(k="part")], step.si(k="body"))).apply_async().get(timeout=20)

    ids = {k: task_id for k, task_id, _, _ in seen}
    assert {k: parent for k, _, parent, _ in seen if k != "before"} == {"part": ids["before"], "body": ids["part"]}


def test_a_step_that_never_runs_has_its_call_stored(
    app: Celery, worker: TaskWorker, seen: list[Any], redis_client: redis.Redis
) -> None:
    """With `result_extended`, as those that have run."""
    app.conf.result_extended = True
    worker.start()

    last = chain(app.tasks["proj.fails"].s(), app.tasks["proj.step"].s(1, k="never")).apply_async()

    raw = eventually(lambda: redis_client.get(f"celery-task-meta-{last.id}"))
    stored = json.loads(raw)
    assert (stored["status"], stored["name"], stored["args"], stored["kwargs"]) == (
        "FAILURE",
        "proj.step",
        [1],
        {"k": "never"},
    )
    assert (stored["worker"], stored["queue"], stored["retries"]) == (None, None, 0)


def test_what_stands_behind_a_chord_whose_body_is_a_chord_fails_with_it(
    app: Celery, worker: TaskWorker, seen: list[Any]
) -> None:
    """To the last step of a chain that is one step itself."""
    step, fails = app.tasks["proj.step"], app.tasks["proj.fails"]
    worker.start()
    body = chord([step.s(k="never")], step.s(k="nor this"))

    last = (chord([fails.s()], body) | chain(step.s(k="nor that"), step.s(k="last"))).apply_async()

    eventually(lambda: last.state == "FAILURE")
    assert isinstance(last.result, ChordError)
