"""Celery tasks and workflows as members of batches, and a workflow that waits for one."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, _state, chain, chord, group

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.client.sync_client import Client
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.testing import fake
from tests.compat.canvas.tasks import declare
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually


@pytest.fixture
def tasks(redis_url: str) -> Iterator[SimpleNamespace]:
    """Tasks of an app on the program's Redis, and a worker for them."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="7")
    known = dict(_state._on_app_finalizers)
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    declared = declare(app)
    worker = TaskWorker(app, redis_url)
    worker.start()
    yield declared
    worker.stop()
    app.close()
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(known)
    sync_client.current().close()
    program.reset()


def test_tasks_are_members(tasks: SimpleNamespace) -> None:
    """Single calls, with options or without."""
    batch = sidekiq.Batch()
    with batch.jobs():
        result = tasks.add.delay(1, 2)
        tasks.add.apply_async((1, 2), countdown=0.1)
        tasks.add.s(3, 4).apply_async(queue="celery")

    status = batch.wait(15, until="success")
    assert (status.total, status.pending) == (3, 0)
    assert result.get(timeout=5) == 3


def test_a_task_that_fails_dies(tasks: SimpleNamespace) -> None:
    """By Celery's rules there is no retry."""
    batch = sidekiq.Batch()
    with batch.jobs():
        tasks.boom.delay()

    status = batch.wait(60)

    assert (status.dead, status.pending) == (1, 1)


@pytest.mark.parametrize("how", ["by a call", "by itself"])
def test_a_task_that_waits_for_its_retry_shows_why(tasks: SimpleNamespace, redis_url: str, how: str) -> None:
    """As other jobs do, its row gives the error."""
    app = tasks.add.app
    retries = {"autoretry_for": (ValueError,)} if how == "by itself" else {}

    @app.task(name="flaky", bind=True, default_retry_delay=3600, **retries)
    def flaky(self: Any) -> None:
        error = ValueError("row 3 is locked")
        raise error if retries else self.retry(exc=error)

    worker = TaskWorker(app, redis_url, ("flaky",))
    worker.start()
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        flaky.apply_async(queue="flaky")
    batch.wait(60)
    worker.stop()

    [row] = batch.rows
    assert row.error is not None
    assert (row.state, row.error["error_class"], row.error["error_message"]) == (
        "error",
        "ValueError",
        "row 3 is locked",
    )
    assert batch.status().as_dict()["members"][0]["error"]["error_message"] == "row 3 is locked"


@pytest.mark.parametrize("kind", ["group", "chain", "chord"])
def test_the_steps_of_a_workflow_are_members(tasks: SimpleNamespace, kind: str) -> None:
    """Also those that its ends push: the batch waits for all of them."""
    add, total = tasks.add, tasks.total
    flow: Any = {
        "group": lambda: group([add.s(1, 1), add.s(2, 2), add.s(3, 3)]),
        "chain": lambda: chain(add.s(1, 1), add.s(2), add.s(3), add.s(4)),
        "chord": lambda: chord([add.s(1, 1), add.s(2, 2), add.s(3, 3)], total.s()),
    }[kind]()
    batch = sidekiq.Batch()
    with batch.jobs():
        result = flow.apply_async()

    status = batch.wait(20, until="success")

    assert result.get(timeout=5) == {"group": [2, 4, 6], "chain": 11, "chord": 12}[kind]
    assert status.total == {"group": 3, "chain": 4, "chord": 4}[kind]


def calls_of(tasks: SimpleNamespace) -> dict[str, tuple[Callable[[], Any], int]]:
    """Calls that write more than their job, and how many jobs each of them pushes at first."""
    add = tasks.add
    return {
        "a chain": (chain(add.s(1, 1), add.s(2)).delay, 1),
        "a chord": (chord([add.s(1, 1), add.s(2, 2)], tasks.total.s()).delay, 2),
        "a group": (group(add.s(1, 1), add.s(2, 2)).delay, 2),
        "a unique task": (lambda: add.apply_async((1, 1), unique_for=60), 1),
    }


CALLS = ["a chain", "a chord", "a group", "a unique task"]


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_waits_for_a_commit_keeps_the_batch_open(tasks: SimpleNamespace, kind: str) -> None:
    """As any push does. Otherwise the batch would succeed before the commit, without these jobs."""
    postponed: list[Callable[[], None]] = []
    call, _ = calls_of(tasks)[kind]
    batch = sidekiq.Batch()

    def after_commit(push: Callable[[], None]) -> bool:
        postponed.append(push)
        return True

    program.push_after_commit(after_commit)
    with batch.jobs():
        call()
    assert (batch.status().total, batch.status().state) == (0, "open")
    program.push_after_commit(None)
    postponed.pop()()

    assert batch.wait(20, until="success").total == {"a chord": 3, "a unique task": 1}.get(kind, 2)


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_waits_for_a_commit_goes_to_the_redis_of_the_call(
    tasks: SimpleNamespace, redis_url: str, kind: str
) -> None:
    """The Redis of the moment of the commit may be another one, which has no such batch."""
    postponed: list[Callable[[], None]] = []
    call, count = calls_of(tasks)[kind]

    def after_commit(push: Callable[[], None]) -> bool:
        postponed.append(push)
        return True

    program.push_after_commit(after_commit)
    with Client.via(redis_url.rpartition("/")[0] + "/1"):
        batch = sidekiq.Batch()
        with batch.jobs():
            call()
    postponed.pop()()

    assert batch.status().total == count


@pytest.mark.parametrize("kind", CALLS)
def test_in_the_fake_mode_a_call_waits_for_the_commit_and_is_a_member(tasks: SimpleNamespace, kind: str) -> None:
    """As in production: a test saw workflows that a rollback would have dropped, and batches without unique tasks."""
    postponed: list[Callable[[], None]] = []
    call, count = calls_of(tasks)[kind]
    batch = sidekiq.Batch()

    def after_commit(push: Callable[[], None]) -> bool:
        postponed.append(push)
        return True

    program.push_after_commit(after_commit)
    with fake() as enqueued:
        with batch.jobs():
            call()
        assert len(enqueued) == 0
        postponed.pop()()

        assert (len(enqueued), batch.status().total) == (count, count)


def test_a_step_that_has_not_run_holds_the_batch_back(tasks: SimpleNamespace, redis_client: redis.Redis) -> None:
    """It is a member before the step that pushes it has ended."""
    batch = sidekiq.Batch()
    with batch.jobs():
        # A moment later, so that the block has been left when it ends.
        first = chain(tasks.add.s(1, 1), tasks.add.s(2).set(countdown=3600)).apply_async(countdown=0.2).parent

    assert first.get(timeout=20) == 2
    eventually(lambda: redis_client.zcard("schedule") == 1)

    status = batch.status()
    assert (status.total, status.pending, status.complete, status.success) == (2, 1, False, False)


@pytest.mark.parametrize("kind", ["group", "chain", "chord"])
def test_the_steps_of_a_workflow_have_rows(tasks: SimpleNamespace, kind: str) -> None:
    """Also those that the end of another step pushes."""
    add, total = tasks.add, tasks.total
    flow: Any = {
        "group": lambda: group([add.s(1, 1), add.s(2, 2)]),
        "chain": lambda: chain(add.s(1, 1), add.s(2)),
        "chord": lambda: chord([add.s(1, 1), add.s(2, 2)], total.s()),
    }[kind]()
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        flow.apply_async()

    status = batch.wait(20, until="success")

    rows = list(batch.rows)
    assert len(rows) == status.total
    assert {(row.state, row.attempts) for row in rows} == {("finished", 1)}
    assert all(row.klass and len(row.jid) == 36 for row in rows)


def test_a_task_over_its_rate_limit_has_a_row_that_waits(
    tasks: SimpleNamespace, redis_url: str, redis_client: redis.Redis
) -> None:
    """It has not started: `working` would show thousands at work where one a minute is."""
    app = tasks.add.app

    @app.task(name="limited", rate_limit="1/h")
    def limited(number: int) -> int:
        return number

    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        for number in range(3):
            limited.apply_async((number,), queue="limited")
    worker = TaskWorker(app, redis_url, ("limited",))
    worker.start()
    try:
        eventually(lambda: redis_client.zcard("schedule") == 2 and batch.rows.counts()["finished"] == 1)

        assert Counter((row.state, row.attempts) for row in batch.rows) == {("finished", 1): 1, ("enqueued", 0): 2}
    finally:
        worker.stop()


def test_a_task_is_a_callback_where_its_app_routes_it(tasks: SimpleNamespace, redis_url: str) -> None:
    """No worker of Celery's tasks serves the queue `default`, in which it would wait unseen."""
    app = tasks.add.app
    app.conf.task_routes = {"proj.notify": {"queue": "high"}}

    @app.task(name="proj.notify")
    def notify(bid: str, event: str, options: Any) -> None:
        seen.append((bid, event, options))

    seen: list[Any] = []
    worker = TaskWorker(app, redis_url, ("high",))
    worker.start()
    try:
        batch = sidekiq.Batch().on("success", notify, {"import_id": 42})
        with batch.jobs():
            tasks.add.delay(1, 2)

        eventually(lambda: seen == [(batch.bid, "success", {"import_id": 42})])
    finally:
        worker.stop()


def test_a_workflow_waits_for_a_batch(tasks: SimpleNamespace, redis_client: redis.Redis) -> None:
    """The batch's callback starts it."""

    @sidekiq.job(name="start_flow", queue="default")
    def start_flow(bid: str, event: str, options: Any) -> None:
        chain(tasks.add.s(*options), tasks.add.s(10)).apply_async(task_id="the-flow")

    batch: Batch = sidekiq.Batch().on("success", start_flow, [1, 2])
    with batch.jobs():
        tasks.add.delay(1, 2)

    with sidekiq.embed(concurrency=1):
        batch.wait(15, until="success")
        assert tasks.add.AsyncResult("the-flow").get(timeout=10) == 13
