"""What a result's handle tells and does, beyond waiting."""

import asyncio
import copy
import io
import pickle
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
import redis
from kombu.exceptions import DecodeError
from sidekiq_celery import Celery, states
from sidekiq_celery._wire.context import Context
from sidekiq_celery.exceptions import IncompleteStream, TaskRevokedError
from sidekiq_celery.result import (
    AsyncResult,
    EagerResult,
    GroupResult,
    ResultBase,
    ResultSet,
    allow_join_result,
    denied_join_result,
    result_from_tuple,
)


@pytest.fixture
def family(app: Celery) -> AsyncResult[Any]:
    """A task that called two others, one of which called another."""
    calls = {"a": ["b", "c"], "b": ["d"], "c": [], "d": []}
    for task_id, called in calls.items():
        request = Context(id=task_id)
        request.children.extend(app.AsyncResult(child) for child in called)
        app.backend.mark_as_done(task_id, task_id.upper(), request=request)
    result: AsyncResult[Any] = app.AsyncResult("a")
    return result


def test_parents_may_bear_other_ids_than_texts(app: Celery) -> None:
    """A column of UUIDs gives them so."""
    ids = [UUID(int=number) for number in range(3)]
    for each in ids:
        app.backend.mark_as_done(str(each), each.int)
    first, second, last = (app.AsyncResult(each) for each in ids)
    second.parent, last.parent = first, second

    assert last.get(timeout=60) == 2


def test_an_id_that_nobody_knows_is_pending(app: Celery) -> None:
    """As is one that waits; `exists` tells no more."""
    result = app.AsyncResult("unknown")

    assert (result.state, result.result, result.ready(), result.exists()) == ("PENDING", None, False, False)
    assert (result.successful(), result.failed(), result.date_done, result.children) == (False, False, None, None)


@pytest.mark.parametrize(
    ("state", "ready", "successful", "failed"),
    [
        ("SUCCESS", True, True, False), ("FAILURE", True, False, True), ("REVOKED", True, False, False),
        ("RETRY", False, False, False), ("STARTED", False, False, False), ("PROGRESS", False, False, False),
    ],
)  # fmt: skip
def test_each_state_says_whether_it_is_the_end(
    app: Celery, state: str, ready: bool, successful: bool, failed: bool
) -> None:
    """Those of a program's own are never the end."""
    app.backend.store_result("a", ValueError("x") if state in states.EXCEPTION_STATES else 1, state)
    result = app.AsyncResult("a")

    assert (result.ready(), result.successful(), result.failed()) == (ready, successful, failed)
    assert isinstance(result.date_done, datetime) == ready


def test_what_has_ended_is_read_once(app: Celery) -> None:
    """What has not is read anew."""
    result = app.AsyncResult("a")
    assert result.state == "PENDING"
    app.backend.mark_as_done("a", 1)
    assert result.state == "SUCCESS"

    app.backend.forget("a")

    assert (result.state, result.result) == ("SUCCESS", 1)
    assert app.AsyncResult("a").state == "PENDING"


def test_waiting_within_a_task_is_refused(app: Celery) -> None:
    """Unless it is asked for, in one of two ways; awaiting holds up no thread."""
    app.backend.mark_as_done("a", 1)
    group = app.GroupResult("g", [app.AsyncResult("a")])

    async def awaited() -> int:
        return int(await app.AsyncResult("a"))

    with denied_join_result():
        for waiting in (app.AsyncResult("a").get, group.get, group.join, EagerResult("e", 1, "SUCCESS").get):
            with pytest.raises(RuntimeError, match="Never call result"):
                waiting()
        assert app.AsyncResult("a").get(disable_sync_subtasks=False) == 1
        with allow_join_result():
            assert group.get() == [1]
        assert asyncio.run(awaited()) == 1


def test_a_result_that_is_not_stored_is_none_at_once(app: Celery) -> None:
    """`ignore_result` is known to whoever called."""
    result = app.AsyncResult("a")

    result.ignored = True

    assert result.get() is None
    assert asyncio.run(result.aget()) is None


def test_handles_are_equal_by_their_ids(app: Celery) -> None:
    """And to the ids themselves."""
    one, other = app.AsyncResult("a"), AsyncResult("a", app=app)

    assert one == other == "a"
    assert len({one, other, copy.copy(one)}) == 1
    assert (str(one), repr(one), one.task_id) == ("a", "<AsyncResult: a>", "a")
    assert one != app.AsyncResult("b")


def test_handles_need_an_id(app: Celery) -> None:
    """None is none."""
    with pytest.raises(ValueError, match="requires valid id"):
        app.AsyncResult(None)


def test_handles_become_tuples_and_come_back(app: Celery) -> None:
    """With what was before them."""
    chain = app.AsyncResult("b", parent=app.AsyncResult("a"))
    group = app.GroupResult("g", [chain, app.GroupResult("h", [app.AsyncResult("c")])], parent=app.AsyncResult("p"))

    assert chain.as_tuple() == (("b", (("a", None), None)), None)
    assert chain.as_list() == ["b", "a"]
    assert result_from_tuple(group.as_tuple(), app) == group
    assert result_from_tuple(chain.as_tuple(), app).parent == "a"
    assert result_from_tuple(group, app) is group
    assert result_from_tuple(["id", None], app) == "id"


def test_handles_can_be_pickled(make_app: Callable[..., Celery]) -> None:
    """They come back as those of the current app."""
    app = make_app()
    app.set_current()
    app.backend.mark_as_done("a", 1)
    results = [app.AsyncResult("a", parent=app.AsyncResult("p")), app.GroupResult("g", [app.AsyncResult("a")])]

    one, group = pickle.loads(pickle.dumps(results))

    assert (one, one.parent, one.get(timeout=0)) == ("a", "p", 1)
    assert (group, group.get(timeout=0)) == (results[1], [1])
    for pool in (one.backend._pool, one.parent.backend._pool, group[0].backend._pool):
        pool.close()


@pytest.mark.parametrize("kind", [AsyncResult, EagerResult, GroupResult, ResultBase, ResultSet])
def test_pickles_name_the_module_that_programs_import(kind: type) -> None:
    """Private modules may move between releases, and a pickle may be read by a later one."""
    assert b"sidekiq_celery.result" in pickle.dumps(kind)


def test_the_tree_of_what_was_called_can_be_walked(app: Celery, family: AsyncResult[Any]) -> None:
    """Results, values, the last value, the graph."""
    assert [(parent, node) for parent, node in family.iterdeps()] == [(None, "a"), ("a", "b"), ("a", "c"), ("b", "d")]
    assert [(node.id, value) for node, value in family.collect()] == [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
    assert family.get_leaf() == "D"
    assert sorted(family.graph.topsort()[-1:]) == ["a"]
    text = io.StringIO()
    family.graph.to_dot(text)
    assert text.getvalue().splitlines()[:3] == [
        "digraph dependencies {",
        '    graph [shape="oval", arrowhead="vee", style="filled", fontname="HelveticaNeue", bgcolor="mintcream", '
        'root="a"]',
        '    "a" [shape="oval", arrowhead="vee", style="filled", fontname="HelveticaNeue", fillcolor="palegreen3", '
        'color="palegreen4"]',
    ]
    assert text.getvalue().endswith(
        '    "d" [shape="oval", arrowhead="vee", style="filled", fontname="HelveticaNeue", fillcolor="palegreen1", '
        'color="palegreen2"]\n}\n'
    )


def test_a_tree_that_grows_is_walked_only_when_asked_for(app: Celery) -> None:
    """It is not all there."""
    with pytest.raises(IncompleteStream):
        list(app.AsyncResult("a").iterdeps())
    assert list(app.AsyncResult("a").iterdeps(intermediate=True)) == [(None, "a")]


def test_a_set_is_a_list_of_results(app: Celery) -> None:
    """Each once, where it is added."""
    one, other = app.AsyncResult("a"), app.AsyncResult("b")
    results = app.ResultSet([one])

    results.add(one)
    results.update([one, other, other])
    results.discard("c")
    with pytest.raises(KeyError):
        results.remove("c")

    assert (list(results), len(results), results[1]) == ([one, other], 2, other)
    results.remove("a")
    assert results == ResultSet([other])
    results.clear()
    assert len(results) == 0


def test_a_set_compares_a_new_result_with_none_of_the_others(app: Celery) -> None:
    """With 50,000 results that took minutes, as it does in Celery. The hash tells which ones it contains already."""
    compared: list[str] = []

    class Counted(AsyncResult[Any]):
        def __eq__(self, other: object) -> Any:
            compared.append(self.id)
            return super().__eq__(other)

        __hash__ = AsyncResult.__hash__

    members = [Counted(f"id-{number}", app=app) for number in range(100)]
    results = app.ResultSet(members[:50])

    results.update(iter([*members, *members]))

    assert results.results == members
    del compared[:]
    results.update([Counted("new", app=app)])
    assert len(compared) < 10


def test_a_set_may_be_updated_with_sets(app: Celery) -> None:
    """They have no hash."""
    one, other = app.ResultSet([app.AsyncResult("a")]), app.ResultSet([app.AsyncResult("b")])
    results = app.ResultSet([one])

    results.update([one, other, other])

    assert results.results == [one, other]


def test_a_set_sums_up_its_results(app: Celery) -> None:
    """How many have returned, whether one failed, whether one is awaited."""
    results = app.ResultSet([app.AsyncResult(each) for each in "ab"])
    assert (results.completed_count(), results.waiting(), results.ready()) == (0, True, False)

    app.backend.mark_as_done("a", 1)
    app.backend.mark_as_failure("b", KeyError("x"))

    assert (results.completed_count(), results.waiting(), results.ready()) == (1, False, True)
    assert (results.successful(), results.failed()) == (False, True)
    with pytest.raises(KeyError):
        results.maybe_throw()


@pytest.mark.parametrize(
    ("question", "answer"),
    [("ready", False), ("successful", False), ("failed", False), ("waiting", True), ("completed_count", 150)],
)
def test_a_question_about_a_large_group_reads_many_results_at_once(
    app: Celery, redis_client: redis.Redis, question: str, answer: int
) -> None:
    """One by one, it would take a round trip for each of the results."""
    ids = [f"task-{number}" for number in range(300)]
    for done in ids[:150]:
        app.backend.mark_as_done(done, 1)
    group = app.GroupResult("g", [app.AsyncResult(each) for each in ids])
    redis_client.config_resetstat()

    assert getattr(group, question)() == answer

    calls = {name: each["calls"] for name, each in redis_client.info("commandstats").items()}
    assert calls.get("cmdstat_get", 0) + calls["cmdstat_mget"] < 10


def test_join_reads_many_results_at_once(app: Celery, redis_client: redis.Redis) -> None:
    """As `get` does, which saves a round trip for each."""
    ids = [f"task-{number}" for number in range(300)]
    for number, each in enumerate(ids):
        app.backend.mark_as_done(each, number)
    group = app.GroupResult("g", [app.AsyncResult(each) for each in ids])
    redis_client.config_resetstat()

    assert group.join(timeout=60) == list(range(300))

    assert redis_client.info("commandstats")["cmdstat_mget"]["calls"] < 10


def test_large_results_are_read_a_few_megabytes_at_a_time(app: Celery, redis_client: redis.Redis) -> None:
    """One reply with all of them could have gigabytes, which Redis would have to build first."""
    ids = [f"task-{number}" for number in range(20)]
    for each in ids:
        app.backend.mark_as_done(each, "x" * 1_000_000)
    redis_client.config_resetstat()

    assert list(map(len, app.ResultSet([app.AsyncResult(each) for each in ids]).get(timeout=60))) == [1_000_000] * 20

    assert redis_client.info("commandstats")["cmdstat_mget"]["calls"] == 5


def test_a_tree_is_read_many_children_at_once(app: Celery, redis_client: redis.Redis) -> None:
    """One by one, a task that has called ten thousand others would take as many round trips."""
    request = Context(id="parent")
    request.children.extend(app.AsyncResult(f"task-{number}") for number in range(300))
    app.backend.mark_as_done("parent", "p", request=request)
    for number in range(300):
        app.backend.mark_as_done(f"task-{number}", number)
    redis_client.config_resetstat()

    assert [value for _, value in app.AsyncResult("parent").collect()] == ["p", *range(300)]

    calls = {name: each["calls"] for name, each in redis_client.info("commandstats").items()}
    assert calls.get("cmdstat_get", 0) + calls.get("cmdstat_mget", 0) < 10


def test_a_child_that_cannot_be_read_ends_the_walk_only_where_it_is(app: Celery, redis_client: redis.Redis) -> None:
    """Another program may have overwritten its result. As in Celery, what comes before it is there."""
    request = Context(id="parent")
    request.children.extend(app.AsyncResult(name) for name in ("first", "broken", "last"))
    app.backend.mark_as_done("parent", "p", request=request)
    for name in ("first", "last"):
        app.backend.mark_as_done(name, name)
    redis_client.set(app.backend.get_key_for_task("broken"), "{not json")

    walk = app.AsyncResult("parent").iterdeps()

    assert [next(walk)[1].id for _ in range(3)] == ["parent", "first", "broken"]
    with pytest.raises(DecodeError):
        next(walk)


def test_a_group_may_mix_results_that_are_read_in_different_ways(app: Celery) -> None:
    """A nested group and a result that did not go through Redis have to be asked themselves."""
    app.backend.mark_as_done("a", 1)
    nested = app.GroupResult("n", [app.AsyncResult("a"), app.AsyncResult("b")])
    eager: AsyncResult[int] = EagerResult("e", 1, "SUCCESS")
    results = app.ResultSet([eager, app.ResultSet([app.AsyncResult("a")]), nested, app.AsyncResult("a")])
    assert (results.ready(), results.completed_count()) == (False, 3)

    app.backend.mark_as_done("b", 2)

    assert (results.ready(), results.successful(), results.failed()) == (True, True, False)
    assert results.completed_count() == 4


def test_a_group_is_true_and_equal_by_all_of_it(app: Celery) -> None:
    """And to its id."""
    group = app.GroupResult("g", [app.AsyncResult("a")])

    assert group == "g" == str(group)
    assert group == GroupResult("g", [app.AsyncResult("a")], app=app)
    assert group != GroupResult("g", [], app=app)
    assert group
    assert not GroupResult(None, [])
    assert repr(group) == "<GroupResult: g [a]>"
    assert group.children == [app.AsyncResult("a")]


def test_an_eager_result_is_there() -> None:
    """What was returned, or raised; nothing is asked of a backend."""
    calls: list[Any] = []
    done, failed = EagerResult("a", 1, "SUCCESS", name="t"), EagerResult("b", KeyError("x"), "FAILURE", "Traceback")

    done.then(lambda result: calls.append(result.get()))

    assert (done.get(), done.state, done.ready(), done.successful(), done.name) == (1, "SUCCESS", True, True, "t")
    assert calls == [1]
    assert asyncio.run(done.aget()) == 1
    with pytest.raises(KeyError):
        failed.get()
    assert (repr(failed.get(propagate=False)), failed.traceback) == ("KeyError('x')", "Traceback")
    assert pickle.loads(pickle.dumps(done)).get() == copy.copy(done).get() == 1
    done.revoke()
    with pytest.raises(TaskRevokedError):
        done.get()


def test_without_a_backend_reading_says_what_to_set(make_app: Callable[..., Celery]) -> None:
    """Storing does nothing."""
    app = make_app(result_backend=None)

    app.backend.mark_as_done("a", 1)

    with pytest.raises(NotImplementedError, match="Set result_backend"):
        app.AsyncResult("a").get(timeout=0)
    with pytest.raises(NotImplementedError, match="Set result_backend"):
        _ = app.AsyncResult("a").state
    assert app.backend.effects_for("a", "SUCCESS", 1) is None
