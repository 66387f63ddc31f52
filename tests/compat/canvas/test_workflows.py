"""Workflows that a worker runs, from the first push to the last result."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, Task, chain, chord, group, signature
from sidekiq_celery.canvas import _chain
from sidekiq_celery.exceptions import ChordError
from sidekiq_celery.result import GroupResult

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

WAIT_SECONDS = 30


def outcome(canvas: Any) -> Any:
    """What a canvas returns in the end."""
    return canvas.apply_async().get(timeout=WAIT_SECONDS)


def header_of_two(t: SimpleNamespace, body: Any) -> Any:
    """A chord whose body is called with [1, 2]."""
    return chord([t.same.si(1), t.same.si(2)], body)


def two_totals(t: SimpleNamespace) -> Any:
    """A group whose members do the same."""
    return group(t.total.s(), t.total.s())


Canvas = Callable[[SimpleNamespace], Any]

# fmt: off
CANVASES: dict[str, tuple[Canvas, Any]] = {
    "a chain": (lambda t: chain(t.add.s(1, 2), t.add.s(3), t.add.s(4)), 10),
    "a chain of immutable steps": (lambda t: t.add.si(1, 1) | t.add.si(2, 2), 4),
    "a group": (lambda t: group(t.add.s(i, i) for i in range(4)), [0, 2, 4, 6]),
    "an empty group": (lambda t: group([]), []),
    "a chord": (lambda t: chord([t.add.s(i, i) for i in range(4)], t.total.s()), 12),
    "a chord of a generator": (lambda t: chord((t.add.s(i, i) for i in range(4)), t.total.s()), 12),
    "a chord of a group of a generator": (lambda t: chord(group(t.add.s(i, i) for i in range(4)), t.total.s()), 12),
    "a chord of a generator of groups": (
        lambda t: chord((group(t.same.s(i), t.same.s(i + 1)) for i in range(2)), t.same.s()),
        [0, 1, 1, 2],
    ),
    "a generator's group and a task": (lambda t: group(t.add.s(i, i) for i in range(4)) | t.total.s(), 12),
    "a chord of nothing": (lambda t: chord([], t.total.s()), 0),
    "a chord of one": (lambda t: chord([t.add.s(1, 2)], t.total.s()), 3),
    "a group and a task": (lambda t: group(t.add.s(1, 1), t.add.s(2, 2)) | t.total.s(), 6),
    "a group within a chain": (lambda t: t.add.s(1, 1) | group(t.add.s(1), t.add.s(2)) | t.total.s() | t.add.s(9), 16),
    "a group at a chain's end": (lambda t: t.add.s(1, 1) | group(t.add.s(1), t.add.s(2)), [3, 4]),
    "two groups in a row": (
        lambda t: group(t.add.s(1, 1), t.add.s(2, 2)) | group(t.total.s(), t.same.s()),
        [6, [2, 4]],
    ),
    "three groups in a row, and a task": (
        lambda t: chain(group(t.same.s(1), t.same.s(2)), group(t.same.s(), t.total.s()), group(t.same.s()), t.same.s()),
        [[1, 2], 3],
    ),
    "chains within a chord": (lambda t: chord([t.add.s(1, 1) | t.add.s(1), t.same.s(5)], t.same.s()), [3, 5]),
    "a chain that ends in a group, within a chord": (
        lambda t: chord([t.add.s(1, 1) | group(t.add.s(1), t.add.s(2)), t.same.s(9)], t.same.s()),
        [[3, 4], 9],
    ),
    "a chain as the last part of a chord between steps": (
        lambda t: t.add.s(1, 1) | chord([t.add.s(1) | t.add.s(10)], t.total.s()) | t.add.s(100),
        113,
    ),
    "a chain as the last part of a group between steps": (
        lambda t: t.add.s(1, 1) | group(t.add.s(1), t.add.s(1) | t.add.s(10)) | t.total.s() | t.add.s(100),
        116,
    ),
    "a group within a chord": (lambda t: chord([group(t.same.s(1), t.same.s(2)), t.same.s(3)], t.same.s()), [1, 2, 3]),
    "a chord within a chord": (
        lambda t: chord([chord([t.same.s(1), t.same.s(2)], t.total.s()), t.same.s(4)], t.same.s()),
        [3, 4],
    ),
    "a chord as a body": (
        lambda t: chord([t.same.s(1), t.same.s(2)], chord([t.total.s(), t.same.s()], t.same.s())),
        [3, [1, 2]],
    ),
    "a chain as a body": (lambda t: chord([t.same.s(1), t.same.s(2)], t.total.s() | t.add.s(10) | t.add.s(100)), 113),
    "a group as a body": (lambda t: chord([t.same.s(1), t.same.s(2)], group(t.total.s(), t.same.s())), [3, [1, 2]]),
    "a chord whose body's body is a group, and a chain": (
        lambda t: header_of_two(t, header_of_two(t, two_totals(t))) | chain(t.same.s(), t.same.s()),
        [3, 3],
    ),
    "a chord whose body's body is a group, and a group": (
        lambda t: header_of_two(t, header_of_two(t, two_totals(t))) | group(t.same.s(), t.total.s()),
        [[3, 3], 6],
    ),
    "a chord whose body's body is a chain that ends in a group, and a chain": (
        lambda t: header_of_two(t, header_of_two(t, t.same.s() | two_totals(t))) | chain(t.same.s(), t.same.s()),
        [3, 3],
    ),
    "a chord whose body is two groups in a row, and a chain": (
        lambda t: header_of_two(t, chain(two_totals(t), two_totals(t))) | chain(t.same.s(), t.same.s()),
        [6, 6],
    ),
    "a body that ignores the results": (lambda t: chord([t.same.s(1)], t.add.si(2, 2)), 4),
    "chords in a chain": (
        lambda t: chain(chord([t.same.s(1), t.same.s(2)], t.total.s()), chord([t.add.s(1), t.add.s(2)], t.same.s())),
        [4, 5],
    ),
    "an empty group within a chain": (lambda t: chain(t.same.s(1), group([]), t.add.s(2)), 3),
    "an empty group and an empty chain": (lambda t: _chain(group([]), _chain()), []),
    "an empty chain within a group": (lambda t: group(t.same.s(1), chain()), [1]),
    "map": (lambda t: t.same.map([1, 2]), [1, 2]),
    "starmap": (lambda t: t.add.starmap([(1, 2), (3, 4)]), [3, 7]),
    "chunks": (lambda t: t.add.chunks([(1, 2), (3, 4), (5, 6)], 2), [[3, 7], [11]]),
    "chunks and a task": (lambda t: t.add.chunks([(1, 2), (3, 4), (5, 6)], 2).group() | t.same.s(), [[3, 7], [11]]),
    "a retry within a chain": (lambda t: t.unstable.s(1) | t.add.s(1), 2),
    "a retry within a chord": (lambda t: chord([t.unstable.s(1), t.unstable.s(2)], t.total.s()), 3),
    "a task replaced within a chain": (lambda t: t.same.s(1) | t.by_another.s() | t.add.s(1), 102),
    "a task replaced by a group within a chain": (lambda t: t.same.s(1) | t.by_two.s() | t.total.s(), 5),
    "a task replaced by chunks": (lambda t: t.by_chunks.s(1), [[2, 3], [4]]),
    "a task replaced by chunks within a chain": (lambda t: t.by_chunks.s(1) | t.same.s(), [[2, 3], [4]]),
    "a task replaced by chunks within a chord": (
        lambda t: chord([t.by_chunks.s(1), t.same.s(9)], t.same.s()),
        [[[2, 3], [4]], 9],
    ),
    "a task replaced by a chain that ends in a group": (lambda t: t.by_a_fork.s(1), [3, 4]),
    "a task so replaced within a chain": (lambda t: t.same.s(1) | t.by_a_fork.s() | t.total.s(), 7),
    "a task replaced by a chord whose body is a group": (lambda t: t.by_a_chord.s(1), [1, [1]]),
    "a task replaced by a chord whose body is a group, within a chain": (
        lambda t: t.same.s(1) | t.by_a_chord.s() | t.same.s() | t.same.s(),
        [1, [1]],
    ),
    "tasks replaced by groups within a chord": (
        lambda t: chord([t.by_two.s(1), t.by_two.s(2)], t.same.s()),
        [[2, 3], [3, 4]],
    ),
    "a task replaced as a body": (lambda t: chord([t.same.s(1)], t.total.s() | t.by_another.s()), 101),
    "a part that is added while the chord runs": (
        lambda t: chord([t.joins_another.s(1), t.same.s(2)], t.same.s()),
        [1, 2, 1001],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CANVASES)
def test_a_canvas_comes_to_its_end(running: SimpleNamespace, name: str) -> None:
    """With the results that Celery documents, in the order of the canvas."""
    make, expected = CANVASES[name]

    assert outcome(make(running)) == expected


@pytest.mark.parametrize("name", CANVASES)
def test_a_canvas_comes_to_its_end_on_one_thread(tasks: SimpleNamespace, worker: TaskWorker, name: str) -> None:
    """Each task's end takes the next there, and what it was told along with it."""
    worker.start(concurrency=1)
    make, expected = CANVASES[name]

    assert outcome(make(tasks)) == expected


# Plain calls as dicts; and nothing, which knows no app.
_NOT_COMPOSED = {"map", "starmap", "chunks", "an empty group", "a task replaced by a chain that ends in a group"}


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in _NOT_COMPOSED])
def test_a_canvas_that_went_through_json_does_the_same(app: Celery, running: SimpleNamespace, name: str) -> None:
    """As one that another program has sent along."""
    make, expected = CANVASES[name]
    canvas = make(running)

    assert outcome(signature(json.loads(json.dumps(canvas)), app=app)) == expected


@pytest.mark.parametrize("makes", [chain, lambda chord, step: chord | chain(step, step)], ids=["chain", "|"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_step_after_a_chord_that_ends_in_a_group_runs_once_even_if_frozen(
    app: Celery, running: SimpleNamespace, makes: Any, depth: int
) -> None:
    """With the ids that freezing has assigned."""
    ends_in_group = two_totals(running)
    for _ in range(depth):
        ends_in_group = header_of_two(running, ends_in_group)
    canvas = makes(ends_in_group, running.same.s())
    frozen = canvas.freeze()

    assert outcome(signature(json.loads(json.dumps(canvas)), app=app)) == [3, 3]
    assert frozen.get(timeout=WAIT_SECONDS) == [3, 3]


def test_errbacks_of_a_step_after_a_chord_that_ends_in_a_group_are_called_once(
    app: Celery, running: SimpleNamespace
) -> None:
    """If a member of the group fails, the steps that follow fail with `ChordError`."""
    told: list[Any] = []

    @app.task(name="told")
    def told_of(request: Any, error: Any, traceback: Any) -> None:
        told.append((request.task, type(error)))

    group_of_two = group(running.total.s(), running.boom.s())
    following = chain(running.same.s().on_error(told_of.s()), running.same.s())

    last = (header_of_two(running, header_of_two(running, group_of_two)) | following).apply_async()

    eventually(lambda: last.state == "FAILURE")
    eventually(lambda: told)
    assert isinstance(last.result, ChordError)
    assert told == [("same", ChordError)]


SENT_OTHERWISE = {
    "in yaml": {"task_serializer": "yaml"},
    "in pickle": {"task_serializer": "pickle"},
    "compressed": {"task_compression": "gzip"},
    "compressed by a route": {"task_routes": {"*": {"compression": "gzip"}}},
}


@pytest.fixture(params=SENT_OTHERWISE)
def sent_otherwise(
    request: pytest.FixtureRequest, app: Celery, tasks: SimpleNamespace, worker: TaskWorker
) -> SimpleNamespace:
    """The tasks, sent in another form than plain JSON, and a worker that runs them."""
    app.conf.update(SENT_OTHERWISE[request.param], accept_content=["json", "pickle", "yaml"])
    worker.start()
    return tasks


def all_kinds_of_chords(t: SimpleNamespace) -> Any:
    """Chords within a chord, whose bodies are a task, a chain and a chord."""
    bodies = t.total.s(), t.total.s() | t.add.s(10), chord([t.total.s(), t.same.s()], t.same.s())
    return chord([header_of_two(t, body) for body in bodies], t.same.s())


def test_a_body_has_the_results_whatever_the_form_in_which_tasks_are_sent(sent_otherwise: SimpleNamespace) -> None:
    """Redis writes the results into a job's text, which it can do in plain JSON alone."""
    assert outcome(all_kinds_of_chords(sent_otherwise)) == [3, 13, [3, [1, 2]]]


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"serializer": "yaml"}], ids=str)
def test_a_body_has_the_results_whatever_its_task_s_own_form(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, options: dict[str, Any]
) -> None:
    """As the class of a task may choose it."""
    app.conf.accept_content = ["json", "yaml"]
    own = app.task(name="own", **options)(lambda values: values)
    worker.start()

    assert outcome(header_of_two(tasks, own.s())) == [1, 2]


def test_a_body_fails_with_its_part_whatever_the_form_in_which_tasks_are_sent(sent_otherwise: SimpleNamespace) -> None:
    """Also a group, which yaml cannot write."""
    body = group(sent_otherwise.same.s(), sent_otherwise.total.s())

    result = chord([sent_otherwise.same.s(1), sent_otherwise.boom.s()], body).apply_async()

    assert list(map(type, result.get(propagate=False, timeout=WAIT_SECONDS))) == [ValueError, ValueError]


def test_a_workflow_leaves_nothing_behind(running: SimpleNamespace, redis_client: redis.Redis) -> None:
    """What was kept of it goes with its steps; that a chord is done is known for a while."""
    outcome(running.add.s(1, 1) | group(running.add.s(1), running.add.s(2)) | running.total.s() | running.add.s(1))

    assert redis_client.keys("sidekiq_py:flow:*") == []
    [key] = redis_client.keys("sidekiq_py:chord:*")
    assert redis_client.hkeys(key) == [b"done"]
    assert 0 < redis_client.ttl(key) <= 24 * 3600


def test_results_know_their_parents(running: SimpleNamespace) -> None:
    """The result of a chain leads back to its first step."""
    result = chain(running.add.s(1, 1), running.add.s(2), running.add.s(3)).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == 7
    assert result.parent.get(timeout=WAIT_SECONDS) == 4
    assert result.parent.parent.get(timeout=WAIT_SECONDS) == 2


def test_a_chords_result_has_its_header_as_parent(running: SimpleNamespace) -> None:
    """A `GroupResult` in the order of the header."""
    result = chord([running.same.s(1), running.same.s(2)], running.total.s()).apply_async()

    assert result.get(timeout=WAIT_SECONDS) == 3
    assert isinstance(result.parent, GroupResult)
    assert result.parent.get(timeout=WAIT_SECONDS) == [1, 2]


def test_requests_know_parent_and_root(running: SimpleNamespace) -> None:
    """Every step has the step before as its parent, and all have the first as their root."""
    result = chain(running.lineage.s(), running.lineage.si(), running.lineage.si()).apply_async()

    third = result.get(timeout=WAIT_SECONDS)
    second, first = result.parent.get(), result.parent.parent.get()

    assert first[1:] == [None, first[0]]
    assert second[1:] == [first[0], first[0]]
    assert third[1:] == [second[0], first[0]]


def test_children_are_the_steps_that_follow(running: SimpleNamespace) -> None:
    """As Celery's `AsyncResult.children`."""
    last = chain(running.add.s(1, 1), running.add.s(2)).apply_async()
    last.get(timeout=WAIT_SECONDS)

    assert last.parent.children == [last]


def test_callbacks_of_every_kind_are_called(running: SimpleNamespace, app: Celery) -> None:
    """Of a task, of a chain (its last step) and of a chord (its body), each with the result."""
    done = [running.add.s(n).set(task_id=f"callback-{n}") for n in (100, 200, 300)]

    running.add.apply_async((1, 1), link=done[0])
    (running.add.s(1, 1) | running.add.s(1)).apply_async(link=done[1])
    chord([running.same.s(1), running.same.s(3)], running.total.s()).apply_async(link=done[2])

    results = [app.AsyncResult(f"callback-{n}").get(timeout=WAIT_SECONDS) for n in (100, 200, 300)]
    assert results == [102, 203, 304]


def test_a_countdown_of_a_later_step_counts_from_its_push(running: SimpleNamespace, redis_client: redis.Redis) -> None:
    """The step waits in `schedule`, and not from the day on which the chain was sent."""
    chain(running.add.s(1, 1), running.add.s(2).set(countdown=3600)).apply_async()

    [(member, score)] = eventually(lambda: redis_client.zrange("schedule", 0, -1, withscores=True))

    payload = json.loads(member)
    assert payload["args"] == [2, 2]
    assert abs(score - payload["created_at"] - 3600) < 1


def test_a_body_with_a_countdown_waits_from_the_last_part_on(
    running: SimpleNamespace, redis_client: redis.Redis
) -> None:
    """With the results in its arguments."""
    chord([running.same.s(1), running.same.s(2)], running.total.s().set(countdown=3600)).apply_async()

    [member] = eventually(lambda: redis_client.zrange("schedule", 0, -1))

    assert json.loads(member)["args"] == [[1, 2]]


def test_parts_may_end_in_any_order(running: SimpleNamespace) -> None:
    """The body has the results in the order of the header."""
    header = [running.same.s(n) for n in range(60)]

    assert outcome(chord(header, running.same.s())) == list(range(60))


def test_what_json_lacks_comes_through_a_chord(running: SimpleNamespace) -> None:
    """In the marks of kombu's json."""
    from datetime import UTC, datetime

    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    assert outcome(chord([running.same.s(moment), running.same.s(None)], running.same.s())) == [moment, None]


def test_a_chord_that_a_real_celery_client_sent_is_joined(
    app: Celery, running: SimpleNamespace, redis_client: redis.Redis
) -> None:
    """Each of its messages bears the body, and the number of parts is where Celery puts it."""
    redis_client.set("celery-taskset-meta-gid.s", 2)
    body = running.total.s().set(task_id="body")

    for index in range(2):
        app.send_task("same", (index + 1,), group_id="gid", group_index=index, chord=dict(body))

    assert app.AsyncResult("body").get(timeout=WAIT_SECONDS) == 3


def test_a_chain_that_a_real_celery_client_sent_goes_on(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker
) -> None:
    """Its first message bears all that follow; from then on they are kept."""
    rest = [tasks.add.s(100).set(task_id="last"), tasks.add.s(10).set(task_id="middle")]
    app.send_task("add", (1, 1), chain=[dict(step) for step in rest])

    worker.start()

    assert app.AsyncResult("last").get(timeout=WAIT_SECONDS) == 112


def test_the_apply_async_of_a_chord_s_body_is_called_once(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker
) -> None:
    """One that sends nothing while a lock is held, as that of celery-singleton, would find the lock of another part."""
    calls: list[Any] = []

    class Single(Task):
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            calls.append(args)
            return super().apply_async(args, kwargs, **options) if len(calls) == 1 else None

    single: Any = app.task(name="single", base=Single)(sum)
    worker.start()

    assert outcome(chord([tasks.same.s(number) for number in range(4)], single.s())) == 6
    assert calls == [([0, 1, 2, 3],)]


def test_an_election_is_a_call(running: SimpleNamespace) -> None:
    """One worker runs it, as after an election among Celery's."""
    assert running.add.s(2, 3).election().get(timeout=30) == 5


def test_a_part_that_ends_in_an_empty_group_ends_with_the_step_before(running: SimpleNamespace) -> None:
    """The body waits for it, as for any other part."""
    part = _chain(running.add.s(1, 1), running.add.s(1), group([]))

    result = chord([part, running.add.s(2, 2)], running.total.s()).apply_async()

    assert result.get(timeout=20) == 7


def test_a_group_that_a_part_adds_to_its_chord_is_waited_for_to_its_last_task(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker
) -> None:
    """Each of its tasks counts; together they are one result, as a group in the header is."""

    @app.task(name="adds_a_group", bind=True)
    def adds_a_group(self: Task) -> int:
        self.add_to_chord(group(tasks.add.si(1, 1), tasks.add.si(2, 2)))
        return 1

    worker.start()
    result = chord([adds_a_group.si(), tasks.add.si(0, 0)], tasks.same.s()).apply_async()

    assert result.get(timeout=20) == [1, 0, [2, 4]]
