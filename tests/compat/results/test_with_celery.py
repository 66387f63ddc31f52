"""The real Celery at the other end: each side reads, and waits for, what the other has stored."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, exceptions
from sidekiq_celery._wire.context import Context

from tests.compat.tasks.worker import TaskWorker
from tests.support.real_celery import python_with_celery
from tests.support.waiting import eventually

SCRIPT = Path(__file__).with_name("celery_side.py")
ROOT = Path(__file__).parents[3]

Side = Callable[..., Any]


@pytest.fixture(scope="session")
def celery_python() -> str:
    """A Python that has Celery: this one, or the one that a variable names."""
    return python_with_celery()


@pytest.fixture
def celery(celery_python: str, redis_url: str) -> Side:
    """Runs `celery_side.py` on the shared Redis; returns what it printed."""

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [celery_python, str(SCRIPT), redis_url, *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout or "null")

    return run


@pytest.fixture
def waiting_celery(celery_python: str, redis_url: str) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `celery_side.py` waiting for ids."""
    started: list[subprocess.Popen[str]] = []

    def start(*ids: str) -> "subprocess.Popen[str]":
        command = [celery_python, str(SCRIPT), redis_url, "wait", *ids]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_celery_stored_is_read(app: Celery, celery: Side) -> None:
    """Values with their types, errors of their classes, states, children, extended fields, groups."""
    celery("store")

    extended = app.AsyncResult("extended")
    assert (extended.state, extended.result) == ("SUCCESS", {"x": [1, None]})
    assert [child.id for child in extended.children] == ["child"]
    assert (extended.name, extended.args, extended.kwargs, extended.worker, extended.retries, extended.queue) == (
        "proj.add", [1], {"b": 2}, "w@h", 3, "high"
    )  # fmt: skip
    assert (datetime.now(UTC) - extended.date_done).total_seconds() < 100
    types = [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff"]
    assert app.AsyncResult("types").get(timeout=0) == types
    with pytest.raises(ValueError, match="no") as caught:
        app.AsyncResult("failure").get(timeout=0)
    assert caught.value.args == ("no", 3)
    assert app.AsyncResult("failure").traceback == "Traceback …"
    with pytest.raises(exceptions.MaxRetriesExceededError):
        app.AsyncResult("celerys").get(timeout=0)
    with pytest.raises(exceptions.SoftTimeLimitExceeded):
        app.AsyncResult("billiards").get(timeout=0)
    with pytest.raises(exceptions.TaskRevokedError):
        app.AsyncResult("revoked").get(timeout=0)
    assert (app.AsyncResult("retry").state, repr(app.AsyncResult("retry").result)) == ("RETRY", "KeyError('again')")
    assert (app.AsyncResult("progress").state, app.AsyncResult("progress").info) == ("PROGRESS", {"done": 3})
    group = app.GroupResult.restore("group")
    assert [member.id for member in group] == ["types", "failure"]
    assert group.get(timeout=5, propagate=False)[0] == types


def test_celery_reads_what_is_stored_here(make_app: Callable[..., Celery], celery: Side) -> None:
    """The same the other way round."""
    app = make_app(result_extended=True)
    request = Context(
        id="extended", task="proj.add", args=[1], kwargs={"b": 2}, hostname="w@h", retries=3,
        delivery_info={"routing_key": "high"},
    )  # fmt: skip
    request.children.append(app.AsyncResult("child"))
    app.backend.mark_as_done("extended", [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff"], request=request)
    app.backend.mark_as_failure("failure", ValueError("no", 3), traceback="Traceback …")
    app.backend.mark_as_failure("celerys", exceptions.MaxRetriesExceededError("too often"))
    app.backend.mark_as_failure("billiards", exceptions.SoftTimeLimitExceeded(3))
    app.backend.mark_as_retry("retry", KeyError("again"))
    app.backend.mark_as_revoked("revoked", "terminated")
    app.backend.store_result("progress", {"done": 3}, "PROGRESS")
    app.GroupResult("group", [app.AsyncResult("extended"), app.AsyncResult("failure")]).save()

    seen = celery("read", "extended", "failure", "celerys", "billiards", "retry", "revoked", "progress", "unknown")

    extended = seen["extended"]
    assert extended["state"] == "SUCCESS"
    assert extended["result"] == repr([datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff"])
    assert (extended["children"], extended["extended"]) == (["child"], ["proj.add", [1], {"b": 2}, "w@h", 3, "high"])
    assert (datetime.now(UTC) - datetime.fromisoformat(extended["date_done"])).total_seconds() < 100
    assert (seen["failure"]["state"], seen["failure"]["result"]) == ("FAILURE", "ValueError('no', 3)")
    assert seen["failure"]["traceback"] == "Traceback …"
    assert (seen["celerys"]["result"], seen["celerys"]["module"]) == (
        "MaxRetriesExceededError('too often')", "celery.exceptions"
    )  # fmt: skip
    assert seen["billiards"]["module"] == "billiard.exceptions"
    assert (seen["retry"]["state"], seen["retry"]["result"]) == ("RETRY", "KeyError('again')")
    assert (seen["revoked"]["state"], seen["revoked"]["module"]) == ("REVOKED", "celery.exceptions")
    assert (seen["progress"]["state"], seen["progress"]["result"]) == ("PROGRESS", "{'done': 3}")
    assert seen["unknown"]["state"] == "PENDING"
    assert celery("group", "group") == ["extended", "failure"]


def test_both_sides_write_the_same_text(app: Celery, celery: Side, redis_client: redis.Redis) -> None:
    """But for the time."""
    celery("store")
    theirs = redis_client.get("celery-task-meta-failure") or b""

    redis_client.delete("celery-task-meta-failure")
    app.conf.result_extended = True
    app.backend.mark_as_failure("failure", ValueError("no", 3), traceback="Traceback …")

    ours = redis_client.get("celery-task-meta-failure") or b""
    time = json.loads(theirs)["date_done"].encode()
    assert ours == theirs.replace(time, json.loads(ours)["date_done"].encode())


def test_celery_waits_for_what_a_worker_here_does(
    app: Celery,
    redis_url: str,
    redis_client: redis.Redis,
    waiting_celery: Callable[..., "subprocess.Popen[str]"],
) -> None:
    """It is woken by what the job's end publishes."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="proj.fail")
    def fail() -> None:
        raise ValueError("no")

    process = waiting_celery("one", "two")
    eventually(lambda: redis_client.pubsub_numsub("celery-task-meta-one")[0][1], within_seconds=60)
    worker = TaskWorker(app, redis_url)
    worker.start()
    try:
        fail.apply_async(task_id="two")
        add.apply_async((2, 3), task_id="one")

        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["5", "ValueError('no')"]
    finally:
        worker.stop()


def test_backends_built_on_celerys_own_class_store_results(celery_python: str, redis_url: str) -> None:
    """As that of a package that imports the real Celery, which is installed, too: it knows nothing of effects."""
    script = Path(__file__).with_name("backend_of_celery.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "compat")])}

    done = subprocess.run(
        [celery_python, str(script), redis_url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert json.loads(done.stdout or "null") == [["SUCCESS", 3], ["FAILURE", "ChordError"]], done.stderr
