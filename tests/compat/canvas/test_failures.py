"""Workflows in which something fails."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery._admission import revokes
from sidekiq_celery.exceptions import ChordError, TaskRevokedError

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

WAIT_SECONDS = 30


def failure(result: Any) -> Any:
    """What a result fails with itself: `get` may raise what the header raised, which is there at the same time."""
    eventually(lambda: result.state in ("FAILURE", "REVOKED"))
    return result.result


def test_a_chain_ends_where_it_fails(running: SimpleNamespace) -> None:
    """Who waits for its last step is told the error of the one that failed."""
    result = chain(running.same.s(1), running.boom.s(), running.add.s(1), running.add.s(2)).apply_async()

    with pytest.raises(ValueError, match="boom"):
        result.get(timeout=WAIT_SECONDS)
    assert result.parent.state == "FAILURE"


def test_a_task_that_waited_for_a_revoked_one_has_failed(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """It was not revoked itself: its errbacks are called, and the steps after it fail."""

    @app.task(name="waits")
    def waits() -> None:
        raise TaskRevokedError("revoked")

    @app.task(name="mourn")
    def mourn(request: Any, exc: BaseException, traceback: Any) -> None:
        redis_client.rpush("mourned", repr(exc))

    worker.start()
    result = chain(waits.s().on_error(mourn.s()), tasks.add.s(1)).apply_async()

    assert isinstance(failure(result), TaskRevokedError)
    assert (result.state, result.parent.state) == ("FAILURE", "FAILURE")
    assert redis_client.lrange("mourned", 0, -1) == [b"TaskRevokedError('revoked')"]


def test_a_part_that_fails_fails_the_body(running: SimpleNamespace) -> None:
    """With an error that names the part and says what it raised."""
    part = running.boom.s().set(task_id="part")
    result = chord([running.same.s(1), part], running.total.s()).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)
    assert re.search(r"Dependency part raised ValueError\('boom'\)", str(error))


def test_a_failed_body_has_a_traceback(running: SimpleNamespace) -> None:
    """With the error of the part and that of the chord. A body that is a group only has the former."""
    part = running.boom.s().set(task_id="part")
    result = chord([running.same.s(1), part], running.total.s() | running.add.s(1)).apply_async()
    fork = chord([running.boom.s()], group(running.same.s(), running.total.s())).apply_async()

    failure(result)
    first, *_, last = result.traceback.strip().splitlines()
    assert first == "ValueError: boom"
    assert last == "sidekiq_celery.exceptions.ChordError: Dependency part raised ValueError('boom')"
    for member in fork.results:
        failure(member)
        assert member.traceback == "ValueError: boom\n"


def test_a_chord_within_a_chord_fails_both(running: SimpleNamespace) -> None:
    """And so does what follows them in a chain."""
    inner = chord([running.same.s(1), running.boom.s()], running.total.s())
    result = (chord([inner, running.same.s(1)], running.total.s()) | running.add.s(1)).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)


def test_a_chain_within_a_chord_fails_it_at_any_step(running: SimpleNamespace) -> None:
    """Not only at the last one, which is the chord's part."""
    result = chord([running.boom.s() | running.add.s(1) | running.add.s(2)], running.total.s()).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)


def test_each_member_of_a_body_that_is_a_group_fails(running: SimpleNamespace) -> None:
    """With the error of the part, as there is no one body to bear a `ChordError`."""
    result = chord([running.boom.s()], group(running.total.s(), running.same.s())).apply_async()

    for member in result.results:
        with pytest.raises(ValueError, match="boom"):
            member.get(timeout=WAIT_SECONDS)


def test_errbacks_of_a_chord_are_called_once(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """However many parts fail."""
    app.conf.task_allow_error_cb_on_chord_header = False

    @app.task(name="mourn")
    def mourn(request: Any, exc: BaseException, traceback: Any) -> None:
        redis_client.rpush("mourned", f"{request.id} {type(exc).__name__}")

    worker.start()
    body = tasks.total.s().set(task_id="body").on_error(mourn.s())
    result = chord([tasks.boom.s() for _ in range(5)], body).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)
    eventually(lambda: redis_client.zcard("dead") == 5)
    assert redis_client.lrange("mourned", 0, -1) == [b"body ChordError"]


def test_errbacks_of_a_chord_reach_the_chord_within_its_body(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """A body that is a group has them called for each member, of a chord for what it ends in."""
    app.conf.task_allow_error_cb_on_chord_header = False

    @app.task(name="mourn")
    def mourn(request: Any, exc: BaseException, traceback: Any) -> None:
        redis_client.rpush("mourned", request.id)

    worker.start()
    inner = chord([tasks.add.si(2, 2)], tasks.total.s().set(task_id="inner"))
    canvas = chord([tasks.boom.s()], group(inner, tasks.total.s().set(task_id="plain")))
    canvas.apply_async(link_error=mourn.s())

    eventually(lambda: redis_client.llen("mourned") == 2)
    assert sorted(redis_client.lrange("mourned", 0, -1)) == [b"inner", b"plain"]


def test_an_errback_that_a_member_shares_with_its_group_is_called_once(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """For each member of a body that is a group."""
    app.conf.task_allow_error_cb_on_chord_header = False

    @app.task(name="mourn")
    def mourn(request: Any, exc: BaseException, traceback: Any) -> None:
        redis_client.rpush("mourned", request.id)

    worker.start()
    first = tasks.total.s().set(task_id="first").on_error(mourn.s())
    last = tasks.total.s().set(task_id="last")
    chord([tasks.boom.s()], group(first, last).set(link_error=[mourn.s()])).apply_async()

    # The errbacks are pushed together, in the order of the members.
    eventually(lambda: b"last" in redis_client.lrange("mourned", 0, -1))
    assert sorted(redis_client.lrange("mourned", 0, -1)) == [b"first", b"last"]


def test_every_step_of_a_chain_within_a_group_that_never_runs_fails(running: SimpleNamespace) -> None:
    """Whoever waits for one of them is told."""
    inner = [running.same.s().set(task_id=name) for name in ("inner first", "inner last")]

    chain(running.boom.si(), group(chain(inner), running.same.s())).apply_async()

    for step in inner:
        assert isinstance(failure(running.same.AsyncResult(step.id)), ValueError)


def test_errbacks_of_a_header_are_called_for_each_part(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Where `task_allow_error_cb_on_chord_header` is set."""

    @app.task(name="mourn")
    def mourn(request: Any, exc: BaseException, traceback: Any) -> None:
        redis_client.rpush("mourned", type(exc).__name__)

    worker.start()
    canvas = chord([tasks.boom.s(), tasks.boom.s()], tasks.total.s())
    canvas.link_error(mourn.s())
    result = canvas.apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)
    eventually(lambda: redis_client.llen("mourned") == 3)
    assert sorted(redis_client.lrange("mourned", 0, -1)) == [b"ChordError", b"ValueError", b"ValueError"]


def test_errbacks_of_a_chain_are_called_for_the_step_that_fails(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """And for that one alone."""

    @app.task(name="mourn")
    def mourn(task_id: str) -> None:
        redis_client.rpush("mourned", task_id)

    worker.start()
    step = tasks.boom.si().set(task_id="broken")
    chain(tasks.same.s(1), step, tasks.add.s(1)).apply_async(link_error=mourn.s())

    eventually(lambda: redis_client.lrange("mourned", 0, -1) == [b"broken"])


@pytest.mark.parametrize("kind", ["group", "chord", "chain"])
def test_a_workflow_may_be_an_errback(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis, kind: str
) -> None:
    """Its first tasks are handed the id of the task that failed, but for those that want nothing."""

    @app.task(name="mourn")
    def mourn(*args: Any) -> str:
        redis_client.rpush("mourned", json.dumps(args))
        return "mourned"

    worker.start()
    errback = {
        "group": group(mourn.s(), mourn.si(1)),
        "chord": chord([mourn.s(), mourn.si(1)], mourn.s("body")),
        "chain": mourn.s() | mourn.s("next"),
    }[kind]
    tasks.boom.s().apply_async(task_id="failed", link_error=errback)

    wanted = {
        "group": [["failed"], [1]],
        "chord": [["failed"], [1], [["mourned", "mourned"], "body"]],
        "chain": [["failed"], ["mourned", "next"]],
    }[kind]
    eventually(lambda: redis_client.llen("mourned") == len(wanted))
    assert sorted(redis_client.lrange("mourned", 0, -1)) == sorted(json.dumps(args).encode() for args in wanted)


def test_a_revoked_part_fails_the_chord(app: Celery, tasks: SimpleNamespace, worker: TaskWorker) -> None:
    """It will never come, so the body does not wait for it."""
    revokes.revoke(app, "part")
    worker.start()
    result = chord([tasks.same.s(1), tasks.same.s(2).set(task_id="part")], tasks.total.s()).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)
    assert re.search("part raised TaskRevokedError", str(error))


def test_who_waits_behind_a_revoked_step_is_told(app: Celery, tasks: SimpleNamespace, worker: TaskWorker) -> None:
    """Celery lets them wait for ever."""
    revokes.revoke(app, "step")
    worker.start()
    result = chain(tasks.same.s(1).set(task_id="step"), tasks.add.s(1)).apply_async()

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)


def test_a_result_that_json_cannot_carry_fails_its_part(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker
) -> None:
    """It could not be in the body's arguments."""

    @app.task(name="odd", ignore_result=True)
    def odd() -> Any:
        return object()

    worker.start()
    result = chord([odd.s()], tasks.total.s()).apply_async()

    error = failure(result)
    assert isinstance(error, ChordError)
    assert re.search("EncodeError", str(error))


def test_a_failed_step_that_is_run_again_by_hand_goes_on(
    app: Celery, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """From the dead set, as by Ruby's Web UI: what follows it is still kept."""
    state = {"broken": True}

    @app.task(name="repairable")
    def repairable(number: int) -> int:
        if state["broken"]:
            raise ValueError("not yet")
        return number

    worker.start()
    result = chain(repairable.s(1), tasks.add.s(1).set(task_id="after")).apply_async()
    with pytest.raises(ValueError, match="not yet"):
        result.get(timeout=WAIT_SECONDS)
    [member] = eventually(lambda: redis_client.zrange("dead", 0, -1))

    state["broken"] = False
    redis_client.lpush("queue:celery", member)

    eventually(lambda: json.loads(redis_client.get("celery-task-meta-after") or b"{}").get("status") == "SUCCESS")
