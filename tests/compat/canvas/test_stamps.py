"""Stamps, from the canvas to the request."""

from types import SimpleNamespace
from typing import Any

from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery.canvas import GroupStampingVisitor, StampingVisitor

from tests.compat.tasks.worker import TaskWorker


class Monitor(StampingVisitor):
    """Stamps every task with one header."""

    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
        return {"monitoring": sig.task, "stamped_headers": ["monitoring"]}


def test_every_part_of_a_canvas_is_stamped(tasks: SimpleNamespace) -> None:
    """Steps, members, header, body and callbacks."""
    canvas = chain(tasks.add.s(1, 1).set(link=[tasks.add.s(9)]), group(tasks.add.s(1), tasks.add.s(2)), tasks.total.s())

    canvas.stamp(Monitor())

    first, fork = canvas.tasks
    [callback] = first.options["link"]
    assert callback["options"]["monitoring"] == "add"
    for sig, name in ((first, "add"), (fork.tasks.tasks[0], "add"), (fork.body, "total")):
        assert sig.options["monitoring"] == name
        assert sig.options["stamped_headers"] == ["monitoring"]


def test_headers_can_be_stamped_without_a_visitor(tasks: SimpleNamespace) -> None:
    """By keywords."""
    sig = tasks.add.s(1, 1)

    sig.stamp(stamp="value")

    assert (sig.options["stamp"], sig.options["stamped_headers"]) == ("value", ["stamp"])


def test_stamps_can_be_gathered(tasks: SimpleNamespace) -> None:
    """In lists, where the same is stamped twice."""
    sig = tasks.add.s(1, 1)

    sig.stamp(stamp="one")
    sig.stamp(append_stamps=True, stamp="two")

    assert sorted(sig.options["stamp"]) == ["one", "two"]


def test_tasks_are_stamped_with_the_groups_that_they_are_in(tasks: SimpleNamespace) -> None:
    """From the outermost."""
    inner = group(tasks.add.s(1, 1)).set(task_id="inner")
    canvas = chord([inner, tasks.add.s(2, 2)], tasks.total.s())

    canvas.stamp(GroupStampingVisitor())

    header = canvas.tasks
    assert header.tasks[0].tasks[0].options["groups"] == [header.id, "inner"]
    assert header.tasks[1].options["groups"] == [header.id]
    assert canvas.body.options["groups"] == []


def test_a_request_knows_its_stamps(app: Celery, tasks: SimpleNamespace, worker: TaskWorker) -> None:
    """Also behind the first step."""

    @app.task(name="stamps_of", bind=True)
    def stamps_of(self: Any, *args: Any) -> Any:
        return [self.request.stamped_headers, self.request.stamps]

    worker.start()
    canvas = chain(tasks.add.s(1, 1), stamps_of.s())
    canvas.stamp(stamp="value")

    assert canvas.apply_async().get(timeout=30) == [["stamp"], {"stamp": "value"}]
