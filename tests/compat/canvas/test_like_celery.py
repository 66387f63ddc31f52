"""Details of workflows that are as in Celery, found by comparing random canvases."""

import json
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery.exceptions import ChordError

from sidekiq_py.client.sync_client import Client
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


def test_the_last_step_of_a_chain_may_add_another(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """Its `request.chain` is an empty list, however the step came to be the last one; elsewhere it is None."""
    step = app.tasks["proj.step"]
    chains: dict[str, Any] = {}

    @app.task(name="proj.look", bind=True)
    def look(self: Any, *args: Any, k: str) -> None:
        chains[k] = list(self.request.chain) if self.request.chain is not None else None
        if k == "last":
            self.request.chain.append(step.si(k="added"))

    worker.start()

    look.delay(k="alone")
    chain(look.si(k="the only one")).apply_async()
    chord([look.si(k="part")], look.si(k="body")).apply_async()
    group(chain(step.si(k="in a group"), look.si(k="last of a member"))).apply_async()
    chain(app.tasks["proj.replaced"].si(), look.si(k="behind a replaced one")).apply_async()
    chain(step.si(k="first"), look.si(k="last").set(headers={"own": "header"})).apply_async()

    eventually(lambda: len(chains) == 7 and any(k == "added" for k, *_ in seen))
    last_ones = ("the only one", "last of a member", "behind a replaced one", "last")
    assert chains == {"alone": None, "part": None, "body": None, **{key: [] for key in last_ones}}


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


def test_a_task_that_replaces_itself_twice_is_nested_twice(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """As Celery counts in `replaced_task_nesting`."""

    @app.task(name="proj.twice", bind=True)
    def twice(self: Any) -> Any:
        return self.replace(app.signature("proj.replaced"))

    worker.start()

    assert twice.delay().get(timeout=20) == "instead"

    assert [nesting for *_, nesting in seen] == [2]


def test_a_parts_children_are_without_the_body(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """The body is called by the part that ends last, after its result was stored; the others never call it."""
    step = app.tasks["proj.step"]
    worker.start()

    result = chord([step.s(k="one"), step.s(k="another")], step.s(k="body")).apply_async()
    result.get(timeout=20)

    assert [part.children for part in result.parent.results] == [[], []]


def test_what_a_task_sends_on_the_side_is_no_child(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """`add_to_parent=False` says so, of a group as of a task."""
    step = app.tasks["proj.step"]

    @app.task(name="proj.sends")
    def sends(is_child: bool) -> None:
        group(step.s(k="one"), step.s(k="another")).apply_async(add_to_parent=is_child)

    worker.start()
    results = [sends.delay(is_child) for is_child in (True, False)]
    for result in results:
        result.get(timeout=20)

    assert [len(result.children) for result in results] == [1, 0]


def test_members_that_were_given_a_body_make_up_a_chord(app: Celery, worker: TaskWorker, seen: list[Any]) -> None:
    """As where Celery or a program freezes a group with a chord's body, and then sends the group."""
    step = app.tasks["proj.step"]
    worker.start()

    group(step.si(k="one"), step.si(k="another")).apply_async(chord=step.s(k="body").set(task_id="the-body"))

    assert app.AsyncResult("the-body").get(timeout=20) == "body"


def test_a_callback_of_a_task_that_a_chain_replaces_has_the_chains_result(
    app: Celery, worker: TaskWorker, redis_url: str
) -> None:
    """Not that of the steps behind it, which a task that was moved here from a real Celery carries itself."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="proj.total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name="proj.by_a_chain", bind=True)
    def by_a_chain(self: Any, number: int) -> Any:
        return self.replace(chain(add.s(number, 1), chord([add.s(1), add.s(2)], total.s())))

    worker.start()
    following = add.s(100).set(task_id="following")
    callback = add.s(1000).set(task_id="callback")

    celery = json.loads(json.dumps({"chain": [following], "callbacks": [callback]}))
    client = Client(redis_url, sidekiq_version="7.3.2")
    client.push({"class": "proj.by_a_chain", "args": [1], "queue": "celery", "celery": celery})
    client.close()

    assert app.AsyncResult("following").get(timeout=20) == 107
    assert app.AsyncResult("callback").get(timeout=20) == 1007
