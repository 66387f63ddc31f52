"""Results that the JSON of payloads lacks, on their way to the next task of a workflow."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.exceptions import EncodeError
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery._wire.json_values import from_plain, with_bare_floats, with_marked_floats
from sidekiq_celery.canvas import Signature
from sidekiq_celery.exceptions import ChordError

from tests.compat.canvas.test_failures import failure
from tests.compat.tasks.worker import TaskWorker

WAIT_SECONDS = 30

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def odd(tasks: SimpleNamespace, worker: TaskWorker, app: Celery) -> SimpleNamespace:
    """The tasks, and one that returns what its argument names, with a worker that runs them."""

    @app.task(name="odd")
    def odd(kind: str) -> Any:
        deep: Any = []
        for _ in range(200):
            deep = [deep]
        circle: list[Any] = []
        circle.append(circle)
        return {
            "circle": circle,
            "nan": NAN,
            "within": {"a": [INF, -INF, 1.5], "NaN": ("Infinity", NAN)},
            "surrogate": "\ud800",
            "deep": deep,
        }[kind]

    @app.task(name="names")
    def names(value: Any) -> str:
        return repr(value)

    @app.task(name="tries_twice", bind=True, default_retry_delay=0)
    def tries_twice(self: Any, value: Any, other: Any = None) -> str:
        if self.request.retries == 0:
            raise self.retry(kwargs={"other": value})
        return repr([value, other])

    @app.task(name="raises")
    def raises(kind: str) -> Any:
        deep: Any = []
        for _ in range(200):
            deep = [deep]
        if kind == "repr":
            raise type("Odd", (Exception,), {"__repr__": lambda self: "\ud800"})
        if kind == "broken":
            raise type("Odd", (Exception,), {"__repr__": lambda self: 1 // 0})("x")
        if kind == "broken again":
            error = type("Odd", (Exception,), {})
            error.__repr__ = lambda self: (_ for _ in ()).throw(error())
            raise error
        if kind == "broken argument":
            raise ValueError("x", type("Row", (), {"__repr__": lambda self: 1 // 0})())
        if kind == "circle":
            circle = ValueError("x")
            circle.args = (circle,)
            raise circle
        raise ValueError({"nan": NAN, "surrogate": "\ud800", "both": [NAN, "\ud800"], "deep": deep}[kind])

    worker.start()
    return SimpleNamespace(**vars(tasks), odd=odd, names=names, tries_twice=tries_twice, raises=raises)


def workflows(tasks: SimpleNamespace, kind: str) -> dict[str, tuple[Signature, Any]]:
    """A workflow by each way on which a result is handed on, and how the last task names what it was given."""
    shown = {"nan": "nan", "within": "{'a': [inf, -inf, 1.5], 'NaN': ['Infinity', nan]}"}.get(kind)
    part, names, other = tasks.odd.si(kind), tasks.names.s(), tasks.same.si(1)
    return {
        "chain": (part | names, shown),
        "longer chain": (other | part | names | tasks.same.s(), shown),
        "chord": (chord([part, other], names), f"[{shown}, 1]"),
        "chord of one": (chord([part], names), f"[{shown}]"),
        "chord whose body is a chain": (chord([other, part], names | tasks.same.s()), f"[1, {shown}]"),
        "chord within a chord": (chord([chord([part, other], tasks.same.s()), other], names), f"[[{shown}, 1], 1]"),
        "group within a group": (chord([other, group(part, part) | tasks.same.s()], names), f"[1, [{shown}, {shown}]]"),
    }


WAYS = (
    "chain", "longer chain", "chord", "chord of one", "chord whose body is a chain", "chord within a chord",
    "group within a group",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["nan", "within"])
@pytest.mark.parametrize("way", WAYS)
def test_nan_and_infinity_are_handed_on(odd: SimpleNamespace, way: str, kind: str) -> None:
    """As in Celery, whose json has them."""
    workflow, shown = workflows(odd, kind)[way]

    assert workflow.apply_async().get(timeout=WAIT_SECONDS) == shown


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["surrogate", "deep"])
def test_a_result_that_no_payload_can_carry_fails_its_task(odd: SimpleNamespace, way: str, kind: str) -> None:
    """And all that waits for it, instead of letting it wait for ever."""
    result = workflows(odd, kind)[way][0].apply_async()

    error = failure(result)
    assert isinstance(error, EncodeError | ChordError)


def test_a_part_that_cannot_be_carried_says_why(odd: SimpleNamespace) -> None:
    """Its own result is the error, the other parts are not touched, and the errbacks of the body are called."""
    result = chord([odd.odd.s("surrogate"), odd.same.s(1)], odd.names.s()).apply_async()

    failure(result)
    first, second = result.parent.results
    assert isinstance(first.result, EncodeError)
    assert "cannot be a part of a chord" in str(first.result)
    assert second.get(timeout=WAIT_SECONDS) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_result_that_contains_itself_fails_its_task(odd: SimpleNamespace, way: str) -> None:
    """And not its process."""
    result = workflows(odd, "circle")[way][0].apply_async()

    error = failure(result)
    assert isinstance(error, EncodeError | ChordError)
    assert "contains itself" in str(error) or "Circular reference detected" in str(error)
    assert odd.names.delay(1).get(timeout=WAIT_SECONDS) == "1"


@pytest.mark.parametrize("levels", [0, 20_000])
def test_arguments_that_contain_themselves_are_refused_by_the_caller(odd: SimpleNamespace, levels: int) -> None:
    """Or are nested too deep: in every place of a workflow, by the error that callers catch."""
    value: Any = []
    value.append(value)
    for level in range(levels):
        value = [value] if level else []
    calls = [
        *(odd.names.s(value), chain(odd.names.s(1), odd.names.si(value)), group(odd.names.s(value))),
        chord([odd.names.s(1)], odd.names.s(value)),
    ]
    said = r"contains itself|Circular reference|recursion depth"

    for call in calls:
        with pytest.raises(EncodeError, match=said):
            call.apply_async()
    # As in Celery, headers are not encoded by the serializer, whose errors are EncodeError.
    with pytest.raises(TypeError, match=said):
        odd.names.apply_async((1,), headers={"tenant": value})


def test_each_member_of_a_group_is_handed_nan(odd: SimpleNamespace) -> None:
    """A body that is more than one job is called by a task of its own."""
    result = chord([odd.odd.s("nan"), odd.same.s(1)], group(odd.names.s(), odd.names.s())).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == ["[nan, 1]", "[nan, 1]"]


def test_a_task_that_was_handed_nan_is_tried_again(odd: SimpleNamespace) -> None:
    """With the same arguments, and others that hold it."""
    result = chord([odd.odd.s("nan"), odd.same.s(1)], odd.tries_twice.s()).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == "[[nan, 1], [nan, 1]]"


def test_callbacks_are_handed_nan_once(odd: SimpleNamespace) -> None:
    """What was begun before the refusal leaves no trace."""
    result = odd.odd.apply_async(("nan",), link=[odd.same.si(1), odd.names.s()])

    assert math.isnan(result.get(timeout=WAIT_SECONDS))
    [children] = result.children
    assert children.get(timeout=WAIT_SECONDS, disable_sync_subtasks=False) == [1, "nan"]


@pytest.mark.parametrize(
    "kind",
    ["nan", "surrogate", "both", "deep", "repr", "broken", "broken again", "broken argument", "circle"],
)
def test_an_error_with_such_arguments_fails_its_chord(odd: SimpleNamespace, kind: str) -> None:
    """The body is told of it all the same, and its errback is called."""
    told = odd.names.si(kind).set(task_id=f"told-{kind}")
    result = chord([odd.raises.s(kind), odd.same.s(1)], odd.names.s().on_error(told)).apply_async()

    assert isinstance(failure(result), ChordError)
    assert odd.names.AsyncResult(f"told-{kind}").get(timeout=WAIT_SECONDS) == repr(kind)


def test_a_body_with_nan_among_its_own_arguments_fails(odd: SimpleNamespace) -> None:
    """As any call with such an argument, and not by never running."""
    result = chord([odd.same.s(1), odd.same.s(2)], odd.same.s(NAN)).apply_async()

    assert isinstance(failure(result), ChordError)


def test_other_errors_are_told_as_they_are(odd: SimpleNamespace) -> None:
    """A second try is made only where it helps."""
    result = chain(odd.same.s({"a": 1}), odd.names.s().set(serializer="no such")).apply_async()

    assert "no such" in str(failure(result))


def test_marks_are_read_back_and_nothing_else_is() -> None:
    """Only what is marked exactly so; a real Celery is handed bare floats."""
    marked = with_marked_floats([INF, {"a": (-INF, NAN)}])

    assert json.loads(json.dumps(marked, allow_nan=False)) == marked
    assert repr(from_plain(marked)) == repr(with_bare_floats(marked)) == "[inf, {'a': [-inf, nan]}]"
    assert with_marked_floats([1.5, "NaN"]) is None
    with pytest.raises(ValueError, match="Unsupported type"):
        from_plain({"__type__": "float", "__value__": "1.5"})
    others = [{"__type__": "float", "__value__": 1.5}, {"__type__": "uuid", "__value__": "nan"}]
    assert with_bare_floats(others) == others
