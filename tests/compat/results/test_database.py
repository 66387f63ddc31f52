"""Results in a database, in the tables of the real Celery, which each side reads of the other."""

import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sidekiq_celery import Celery, exceptions
from sidekiq_celery._wire.context import Context

from tests.compat.tasks.worker import TaskWorker
from tests.support.real_celery import python_with_celery

sqlalchemy = pytest.importorskip("sqlalchemy")
DatabaseBackend = pytest.importorskip("sidekiq_celery.backends.database").DatabaseBackend

SCRIPT = Path(__file__).with_name("celery_side.py")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A database of its own."""
    return f"db+sqlite:///{tmp_path}/results.db"


@pytest.fixture
def database_app(make_app: Callable[..., Celery], place: str) -> Celery:
    """An app whose results are there."""
    return make_app(result_backend=place, result_extended=True)


def test_results_without_the_call_are_of_another_class(make_app: Callable[..., Celery], place: str) -> None:
    """Of the same table: columns that only `result_extended` fills are nothing to it."""
    app = make_app(result_backend=place)

    app.backend.mark_as_done("a", 5)

    assert app.AsyncResult("a").result == 5
    assert app.AsyncResult("a").name is None


def test_a_backend_may_be_given_what_to_do_with_its_engine(make_app: Callable[..., Celery], place: str) -> None:
    """A subclass adds a listener that fetches a fresh password this way; otherwise the setting applies."""
    by_setting: list[Any] = []
    given: list[Any] = []
    app = make_app(result_backend=place, database_engine_callback=by_setting.append)
    url = place.removeprefix("db+")

    DatabaseBackend(url, app=app, engine_callback=given.append).mark_as_done("a", 5)

    assert {type(engine) for engine in given} == {sqlalchemy.Engine}
    assert by_setting == []
    assert app.AsyncResult("a").result == 5
    assert {type(engine) for engine in by_setting} == {sqlalchemy.Engine}


def celery(redis_url: str, place: str, *arguments: str) -> Any:
    """What `celery_side.py` prints with its results there."""
    done = subprocess.run(
        [python_with_celery(), str(SCRIPT), redis_url, *arguments],
        env={**os.environ, "RESULT_BACKEND": place},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null")


def test_what_celery_has_stored_is_read(database_app: Celery, redis_url: str, place: str) -> None:
    """Values, errors, states, groups and the call."""
    celery(redis_url, place, "store")

    extended = database_app.AsyncResult("extended")
    failed = database_app.AsyncResult("failure")
    assert (extended.state, extended.result, extended.name) == ("SUCCESS", {"x": [1, None]}, "proj.add")
    assert (extended.args, extended.kwargs, extended.worker, extended.retries) == ([1], {"b": 2}, "w@h", 3)
    assert [child.id for child in extended.children or []] == ["child"]
    assert database_app.AsyncResult("types").result == [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff"]
    assert (failed.state, repr(failed.result), failed.traceback) == ("FAILURE", "ValueError('no', 3)", "Traceback …")
    assert isinstance(database_app.AsyncResult("revoked").result, exceptions.TaskRevokedError)
    assert database_app.AsyncResult("progress").info == {"done": 3}
    assert database_app.AsyncResult("never heard of").state == "PENDING"
    assert [one.id for one in database_app.GroupResult.restore("group")] == ["types", "failure"]


def test_celery_reads_what_is_stored_here(database_app: Celery, redis_url: str, place: str) -> None:
    """A task's success stays, whatever a second run of it says."""
    backend = database_app.backend
    request = Context(
        id="extended", task="proj.add", args=[1], kwargs={"b": 2}, hostname="w@h", delivery_info={"routing_key": "high"}
    )
    backend.mark_as_done("extended", {"x": [1, None]}, request=request)
    backend.mark_as_failure("extended", ValueError("a second run"))
    backend.mark_as_failure("failure", ValueError("no", 3), traceback="Traceback …")
    database_app.GroupResult("group", [database_app.AsyncResult("extended")]).save()

    seen = celery(redis_url, place, "read", "extended", "failure", "nobody")

    assert (seen["extended"]["state"], seen["extended"]["result"]) == ("SUCCESS", "{'x': [1, None]}")
    assert seen["extended"]["extended"] == ["proj.add", [1], {"b": 2}, "w@h", 0, "high"]
    assert (seen["failure"]["result"], seen["failure"]["traceback"]) == ("ValueError('no', 3)", "Traceback …")
    assert seen["nobody"]["state"] == "PENDING"
    assert celery(redis_url, place, "group", "group") == ["extended"]


def test_rows_that_a_program_has_read_are_decoded(database_app: Celery) -> None:
    """As Airflow does, to ask for many states at once."""
    backend: Any = database_app.backend
    backend.mark_as_done("a", [1])
    backend.mark_as_failure("b", ValueError("no"))

    with backend.ResultSession() as session:
        metas = [backend.meta_from_decoded(row.to_dict()) for row in session.query(backend.task_cls)]

    assert {meta["task_id"]: repr(meta["result"]) for meta in metas} == {"a": "[1]", "b": "ValueError('no')"}


def test_a_worker_writes_there_and_a_caller_waits(database_app: Celery, redis_url: str) -> None:
    """Chords take their parts' results from Redis all the same."""

    @database_app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    @database_app.task(name="proj.total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @database_app.task(name="proj.fails")
    def fails() -> None:
        raise ValueError("boom")

    worker = TaskWorker(database_app, redis_url)
    worker.start()
    try:
        from sidekiq_celery import chord

        assert add.delay(2, 3).get(timeout=20) == 5
        assert chord([add.si(1, 1), add.si(2, 2)], total.s()).apply_async().get(timeout=20) == 6
        with pytest.raises(ValueError, match="boom"):
            fails.delay().get(timeout=20)
    finally:
        worker.stop()


def test_results_go_when_they_are_forgotten_or_old(database_app: Celery) -> None:
    """`celery.backend_cleanup` deletes what has expired."""
    backend = database_app.backend
    for task_id in ("kept", "forgotten"):
        backend.mark_as_done(task_id, 1)
    database_app.AsyncResult("forgotten").forget()
    assert not backend.task_result_exists("forgotten")

    backend.cleanup()
    assert backend.task_result_exists("kept")

    backend.expires = timedelta(seconds=-60)
    database_app.tasks["celery.backend_cleanup"]()
    assert not backend.task_result_exists("kept")


def test_tables_of_an_older_celery_get_the_columns_that_they_lack(database_app: Celery, tmp_path: Path) -> None:
    """As Celery itself adds them."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/results.db")
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "CREATE TABLE celery_taskmeta (id INTEGER PRIMARY KEY AUTOINCREMENT, task_id VARCHAR(155) UNIQUE, "
                "status VARCHAR(50), result BLOB, date_done DATETIME, traceback TEXT)"
            )
        )

    database_app.backend.mark_as_done("a", 5)

    assert database_app.AsyncResult("a").result == 5
