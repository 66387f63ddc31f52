"""Stored workflows to which another program has written."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, chain, chord

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

STEP = b'{"s":{"task":"add","args":[1],"kwargs":{},"options":{},"subtask_type":null,"immutable":false},"n":%s}'
FLOW = "sidekiq_py:flow:first"
DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.fixture
def mourned(app: Celery, redis_client: redis.Redis) -> Any:
    """An errback that notes the ids of the tasks that failed."""

    @app.task(name="mourn")
    def mourn(task_id: str) -> None:
        redis_client.rpush("mourned", task_id)

    return mourn


def failed(redis_client: redis.Redis, task_id: str) -> dict[str, Any]:
    """The stored failure of a task, once its errback has been called."""
    eventually(lambda: redis_client.lrange("mourned", 0, -1) == [task_id.encode()])
    stored: dict[str, Any] = json.loads(redis_client.get(f"celery-task-meta-{task_id}"))
    assert stored["status"] == "FAILURE"
    return stored


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"0", b"[]", b"{}", DEEP, b'{"s":{"task":[]},"n":null}', STEP % b"5", STEP % b'{"id":[],"next":{}}'],
    ids=lambda text: str(text[:30]),
)
@pytest.mark.parametrize("first", ["same", "boom"])
def test_a_step_that_was_overwritten_fails_the_task_before_it_and_names_the_key(
    tasks: SimpleNamespace,
    worker: TaskWorker,
    redis_client: redis.Redis,
    mourned: Any,
    caplog: pytest.LogCaptureFixture,
    first: str,
    text: bytes,
) -> None:
    """Its errback is called, as for any failure."""
    begins = getattr(tasks, first).s(1).set(task_id="first").on_error(mourned.s())
    chain(begins, tasks.add.s(1).set(task_id="step")).apply_async()
    redis_client.hset(FLOW, "step", text)

    worker.start()

    error = failed(redis_client, "first")["result"]
    assert error["exc_type"] == ("InvalidTaskError" if first == "same" else "ValueError")
    assert f"the field 'step' of {FLOW} is no step of a workflow" in caplog.text
    assert redis_client.hget(FLOW, "step") == text
    assert "errbacks raised" not in caplog.text


def test_steps_that_lead_in_a_circle_are_failed_once(
    tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis, mourned: Any
) -> None:
    """The worker read them again and again, for good."""
    begins = tasks.boom.s().set(task_id="first").on_error(mourned.s())
    chain(begins, tasks.add.s(1).set(task_id="step")).apply_async()
    redis_client.hset(FLOW, "step", STEP % b'{"id":"first","next":"step"}')

    worker.start()

    assert failed(redis_client, "first")["result"]["exc_type"] == "ValueError"


@pytest.mark.parametrize(
    ("field", "text"),
    [("body", b"0"), ("body", b"{}"), ("body", b"\xff"), ("body", DEEP), ("parts", b"x"), ("parts", b"9" * 5000)],
    ids=lambda value: str(value[:30]),
)
@pytest.mark.parametrize("part", ["same", "boom"])
def test_a_chord_that_was_overwritten_fails_its_part_and_names_the_key(
    tasks: SimpleNamespace,
    worker: TaskWorker,
    redis_client: redis.Redis,
    mourned: Any,
    caplog: pytest.LogCaptureFixture,
    part: str,
    field: str,
    text: bytes,
) -> None:
    """The part's errback is called, as for any failure."""
    header = [getattr(tasks, part).s(1).set(task_id="part").on_error(mourned.s())]
    chord(header, tasks.total.s(), task_id="parts").apply_async()
    [key] = redis_client.keys("sidekiq_py:chord:*")
    redis_client.hset(key, field, text)

    worker.start()

    error = failed(redis_client, "part")["result"]
    assert error["exc_type"] == ("InvalidTaskError" if part == "same" else "ValueError")
    assert f"{key.decode()} is no chord" in caplog.text
    assert "errbacks raised" not in caplog.text


@pytest.mark.parametrize("first", ["same", "boom"])
def test_a_workflow_whose_key_has_a_wrong_type_is_named(
    tasks: SimpleNamespace,
    worker: TaskWorker,
    redis_client: redis.Redis,
    mourned: Any,
    caplog: pytest.LogCaptureFixture,
    first: str,
) -> None:
    """Redis says only that some key has."""
    begins = getattr(tasks, first).s(1).set(task_id="first").on_error(mourned.s())
    chain(begins, tasks.add.s(1)).apply_async()
    redis_client.delete(FLOW)
    redis_client.set(FLOW, "foreign")

    worker.start()

    error = failed(redis_client, "first")["result"]
    assert error["exc_type"] == ("InvalidTaskError" if first == "same" else "ValueError")
    assert f"{FLOW} is not a hash" in caplog.text
    assert "errbacks raised" not in caplog.text
