"""Waiting for results in a worker: refused where a thread would be held up, allowed where none is."""

import threading
from collections.abc import Iterator

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.result import allow_join_result

from tests.compat.tasks.worker import TaskWorker


@pytest.fixture
def worker(app: Celery, redis_url: str) -> Iterator[TaskWorker]:
    """Not started yet."""
    one = TaskWorker(app, redis_url)
    yield one
    one.stop()


def test_a_task_that_waits_for_another_fails(app: Celery, worker: TaskWorker) -> None:
    """Unless it says that it means it, or awaits it; nobody else in its process is kept from waiting."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="proj.waits")
    def waits() -> int:
        return int(add.delay(1, 1).get(timeout=30))

    @app.task(name="proj.insists")
    def insists() -> int:
        with allow_join_result():
            return int(add.delay(2, 2).get(timeout=30))

    @app.task(name="proj.awaits")
    async def awaits() -> int:
        return await add.delay(3, 3) + await add.delay(4, 4).aget(timeout=30)

    @app.task(name="proj.elsewhere")
    def elsewhere() -> list[int]:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(add.delay(5, 5).get(timeout=30)))
        thread.start()
        thread.join()
        return found

    worker.start()

    with pytest.raises(RuntimeError, match="Never call result"):
        waits.delay().get(timeout=60)
    assert insists.delay().get(timeout=60) == 4
    assert awaits.delay().get(timeout=60) == 14
    assert elsewhere.delay().get(timeout=60) == [10]


def test_a_task_that_runs_in_the_caller_may_wait(app: Celery) -> None:
    """As in Celery, where `apply` runs it; `task_always_eager` stands for a worker and refuses."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="proj.waits")
    def waits() -> int:
        return int(add.apply((1, 1)).get())

    assert waits.apply().get() == 2
    app.conf.task_always_eager = True
    with pytest.raises(RuntimeError, match="Never call result"):
        waits.delay().get()
