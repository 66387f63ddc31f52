"""Celery's guide "Canvas: Designing Work-flows", walked through with the import changed."""

import io
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
import redis
from sidekiq_celery import chain, chord, group, maybe_signature, signature
from sidekiq_celery.canvas import StampingVisitor
from sidekiq_celery.exceptions import ChordError
from sidekiq_celery.result import allow_join_result

from tests.compat.documentation.conftest import PROJECT, WAIT_SECONDS
from tests.support.waiting import eventually

Noted = Callable[..., list[str]]
NAME = f"{PROJECT}.tasks"


def test_a_signature_wraps_a_call(proj: ModuleType) -> None:
    """Section "Signatures": made by name, by `signature` or by `s`; it can be looked at, and called here."""
    by_name = signature(f"{NAME}.add", args=(2, 2), countdown=10)
    full = proj.add.signature((2, 2), {"debug": True}, countdown=10)

    assert repr(by_name) == repr(proj.add.signature((2, 2), countdown=10)) == f"{NAME}.add(2, 2)"
    assert repr(proj.add.s(2, 2, debug=True)) == f"{NAME}.add(2, 2, debug=True)"
    assert (full.args, full.kwargs, full.options) == ((2, 2), {"debug": True}, {"countdown": 10})
    assert proj.add.s(2, 2)() == 4
    assert repr(proj.add.s(2, 2).set(countdown=1)) == f"{NAME}.add(2, 2)"


def test_a_partial_is_filled_up(tasks: ModuleType) -> None:
    """Section "Partials": in front, by keywords, and by options that come later."""
    assert tasks.subtract.s(10).delay(30).get(timeout=WAIT_SECONDS) == 20
    assert tasks.add.s(2).apply_async((4,)).get(timeout=WAIT_SECONDS) == 6
    assert tasks.add.s(2, 2).apply_async(kwargs={"debug": True}).get(timeout=WAIT_SECONDS) == 4
    assert tasks.add.signature((2, 2), countdown=3600).apply_async(countdown=0).get(timeout=WAIT_SECONDS) == 4
    assert repr(tasks.add.s(2).clone(args=(4,), kwargs={"debug": True})) == f"{NAME}.add(4, 2, debug=True)"


def test_an_immutable_callback_wants_no_result(tasks: ModuleType, noted: Noted) -> None:
    """Section "Immutability"."""
    tasks.add.apply_async((2, 2), link=tasks.reset_buffers.signature(immutable=True))
    tasks.add.apply_async((2, 2), link=tasks.reset_buffers.si())

    assert noted("resets", 2) == ["done", "done"]


def test_a_tilde_sends_and_waits(tasks: ModuleType) -> None:
    """Section "Immutability"."""
    assert ~tasks.add.s(2, 2) == 4


def test_callbacks_follow(tasks: ModuleType) -> None:
    """Section "Callbacks", and the children of section "Chains"."""
    result = tasks.add.apply_async((2, 2), link=tasks.mul.s(16))

    assert result.get(timeout=WAIT_SECONDS) == 4
    assert [child.get(timeout=WAIT_SECONDS) for child in result.children] == [64]
    assert [value for _, value in result.collect()] == [4, 64]


def test_the_primitives_in_short(tasks: ModuleType, noted: Noted) -> None:
    """Section "The Primitives"."""
    add, mul, xsum = tasks.add, tasks.mul, tasks.xsum
    evens = list(range(0, 20, 2))
    workflows: list[tuple[Any, tuple[Any, ...], Any]] = [
        (chain(add.s(2, 2), add.s(4), add.s(8)), (), 16),
        (add.s(2, 2) | add.s(4) | add.s(8), (), 16),
        (group(add.s(i, i) for i in range(10)), (), evens),
        (chord((add.s(i, i) for i in range(10)), xsum.s()), (), 90),
        (add.s(4) | mul.s(8), (16,), 160),
        (add.s(4, 16) | mul.s(2) | (add.s(4) | mul.s(8)), (), 352),
        (group(add.s(i, i) for i in range(10)) | xsum.s(), (), 90),
        (add.s(4, 4) | group(add.si(i, i) for i in range(10)), (), evens),
    ]
    results = [(workflow(*arguments), expected) for workflow, arguments, expected in workflows]
    for result, expected in results:
        assert result.get(timeout=WAIT_SECONDS) == expected
    assert results[-1][0].parent.get(timeout=WAIT_SECONDS) == 8

    chord((add.s(i, i) for i in range(3)), tasks.store.si("all imported", "imports")).apply_async()
    assert noted("imports") == ["all imported"]


def test_the_results_of_earlier_steps(tasks: ModuleType) -> None:
    """Sections "The Primitives" and "Chains": `parent`."""
    res = (tasks.add.si(2, 2) | tasks.add.si(4, 4) | tasks.add.si(8, 8))()

    assert (res.get(timeout=WAIT_SECONDS), res.parent.get(), res.parent.parent.get()) == (16, 8, 4)


def test_errbacks(tasks: ModuleType, noted: Noted) -> None:
    """Section "Chains": `on_error`, `link_error`, and `link` of a signature."""
    first = tasks.fail.s("one").on_error(tasks.log_error.s()).delay()
    second = tasks.fail.apply_async(("two",), link_error=tasks.log_error.s())
    linked = tasks.add.s(2, 2)
    linked.link(tasks.mul.s(4))
    linked.link(tasks.store.s("linked"))

    assert set(noted("errors", 2)) == {f"{first.id} ValueError('one')", f"{second.id} ValueError('two')"}
    linked.delay()
    assert noted("linked") == ["4"]


def test_a_chain_can_be_read(tasks: ModuleType) -> None:
    """Section "Chains": its text; `apply_async`; 4 + 4, times 8, times 10."""
    steps = chain(tasks.add.s(4, 4), tasks.mul.s(8), tasks.mul.s(10))

    assert repr(steps) == f"{NAME}.add(4, 4) | mul(8) | mul(10)"
    assert steps().get(timeout=WAIT_SECONDS) == 640
    assert (tasks.add.s(2, 2) | tasks.mul.s(8) | tasks.mul.s(10)).apply_async().get(timeout=WAIT_SECONDS) == 320


def test_the_id_of_a_chain_is_that_of_its_last_step(tasks: ModuleType) -> None:
    """Section "Task ID"."""
    task_id = str(uuid4())

    result = chain(tasks.add.s(1, 1), tasks.mul.s(2)).apply_async(task_id=task_id)

    assert (result.id, result.get(timeout=WAIT_SECONDS)) == (task_id, 4)


def test_results_make_a_graph(tasks: ModuleType) -> None:
    """Section "Graphs"."""
    result = chain(tasks.add.s(4, 4), tasks.mul.s(8), tasks.mul.s(10))()
    result.get(timeout=WAIT_SECONDS)
    drawn = io.StringIO()
    first, second, third = result.parent.parent.id, result.parent.id, result.id

    graph = result.parent.parent.graph
    graph.to_dot(drawn)

    assert drawn.getvalue().startswith("digraph")
    assert repr(graph).splitlines() == [
        f"{first}(2)",
        f"     {second}(1)",
        f"          {third}(0)",
        f"{second}(1)",
        f"     {third}(0)",
        f"{third}(0)",
    ]


def test_groups_and_their_results(tasks: ModuleType) -> None:
    """Sections "Groups" and "Group Results"."""
    job = group([tasks.add.s(2**i, 2**i) for i in range(1, 6)])
    result = job.apply_async()

    assert result.get(timeout=WAIT_SECONDS) == [4, 8, 16, 32, 64]
    assert (result.ready(), result.successful(), result.failed(), result.waiting()) == (True, True, False, False)
    assert (result.completed_count(), len(result), result[0].get()) == (5, 5, 4)


def test_a_group_s_callbacks(tasks: ModuleType, noted: Noted) -> None:
    """Section "Group Callbacks and Error Handling": `link` is the first member's, `link_error` everybody's."""
    failing = group(tasks.fail.s("a"), tasks.fail.s("b"))
    failing.link_error(tasks.log_error.s())
    fine = group(tasks.add.s(2, 2), tasks.add.s(4, 4))
    fine.link(tasks.reset_buffers.si())

    failing()
    result = fine()

    assert {line.split()[1] for line in noted("errors", 2)} == {"ValueError('a')", "ValueError('b')"}
    assert noted("resets") == ["done"]
    assert result.get(timeout=WAIT_SECONDS) == [4, 8]


def test_a_group_of_one_is_unrolled(tasks: ModuleType) -> None:
    """Section "Group Unrolling": within a chain it is the task; a real group and a task make a chord."""
    add = tasks.add
    assert repr(chain(add.s(2, 2), group(add.s(1)), add.s(1))) == f"{NAME}.add(2, 2) | add(1) | add(1)"
    assert chain(add.s(2, 2), group(add.s(1)), add.s(1))().get(timeout=WAIT_SECONDS) == 6
    assert chain(add.s(2, 2), group(add.s(1), add.s(2)), tasks.xsum.s())().get(timeout=WAIT_SECONDS) == 11


def test_chords_of_a_hundred(tasks: ModuleType) -> None:
    """Section "Chords": with the callback later, or by hand."""
    assert chord(tasks.add.s(i, i) for i in range(100))(tasks.xsum.s()).get(timeout=WAIT_SECONDS) == 9900

    header, callback = [tasks.add.s(i, i) for i in range(100)], tasks.xsum.s()
    assert chord(header)(callback).get(timeout=WAIT_SECONDS) == 9900


def test_a_chord_fails_with_its_part(tasks: ModuleType, noted: Noted) -> None:
    """Section "Error handling": the body fails with `ChordError`, its errback is called; `get` raises the part's."""
    parts = [tasks.add.s(4, 4), tasks.fail.s(), tasks.add.s(8, 8)]

    result = chord(parts)(tasks.xsum.s().on_error(tasks.log_error.s()))

    assert "ChordError" in noted("errors")[0]
    assert eventually(lambda: isinstance(result.result, ChordError), within_seconds=WAIT_SECONDS)
    with pytest.raises(ValueError, match="something something"):
        result.get(timeout=WAIT_SECONDS)


def test_a_signature_may_come_as_a_dict(tasks: ModuleType) -> None:
    """Section "Important Notes": `maybe_signature`, after JSON."""
    again = maybe_signature(json.loads(json.dumps(tasks.add.s(2, 2))), app=tasks.add.app)

    assert again.delay().get(timeout=WAIT_SECONDS) == 4


def test_maps(tasks: ModuleType) -> None:
    """Section "Map & Starmap": one task for all."""
    with allow_join_result():
        assert ~tasks.xsum.map([list(range(10)), list(range(100))]) == [45, 4950]
        assert ~tasks.add.starmap(zip(range(10), range(10), strict=True)) == list(range(0, 20, 2))


def test_chunks(tasks: ModuleType) -> None:
    """Section "Chunks": a hundred calls as ten tasks; as a group, they may begin one after the other."""
    pairs = list(zip(range(100), range(100), strict=True))
    result = tasks.add.chunks(pairs, 10)()

    assert [sum(part) for part in result.get(timeout=WAIT_SECONDS)] == [90 + 200 * i for i in range(10)]
    skewed = tasks.add.chunks(pairs, 10).group().skew(start=1, stop=10)
    assert [member.options["countdown"] for member in skewed.tasks] == [float(i) for i in range(1, 11)]


def test_stamps(tasks: ModuleType, client: redis.Redis) -> None:
    """Sections "Stamping" and "Custom stamping": kept with the results of a whole canvas."""

    class Monitored(StampingVisitor):
        def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
            return {"monitoring_id": "m1"}

    first = tasks.add.si(2, 2)
    frozen = first.freeze()
    stamped = group(first, tasks.add.si(3, 3))
    stamped.stamp(stamp="your_custom_stamp")
    visited = chord([tasks.add.s(1, 1), tasks.add.s(2, 2)], tasks.xsum.s())
    visited.stamp(visitor=Monitored())

    assert stamped.apply_async().get(timeout=WAIT_SECONDS) == [4, 6]
    assert frozen._get_task_meta()["stamp"] == "your_custom_stamp"
    assert visited.body.options["monitoring_id"] == "m1"
    assert visited().get(timeout=WAIT_SECONDS) == 6


def test_callbacks_are_stamped_too(tasks: ModuleType) -> None:
    """Section "Callbacks stamping"."""

    class Both(StampingVisitor):
        def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
            return {"header": "value"}

        def on_callback(self, callback: Any, **header: Any) -> dict[str, Any]:
            return {"on_callback": True}

        def on_errback(self, errback: Any, **header: Any) -> dict[str, Any]:
            return {"on_errback": True}

    canvas = chord([tasks.add.s(1, 1), tasks.add.s(2, 2)], tasks.xsum.s())
    canvas.link(signature("sig_link"))
    canvas.link_error(signature("sig_link_error"))
    canvas.stamp(visitor=Both())

    assert canvas.tasks.tasks[0].options["header"] == canvas.body.options["header"] == "value"
    link, errback = canvas.body.options["link"][0].options, canvas.body.options["link_error"][0].options
    assert (link["header"], link["on_callback"]) == ("value", True)
    assert (errback["header"], errback["on_errback"]) == ("value", True)
    assert sorted(link["stamped_headers"]) == ["header", "on_callback"]
