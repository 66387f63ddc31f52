"""A dashboard over the emptied server, and an app that reads and sends there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from sidekiq_celery import Celery

from tests.support.celery_program import StartWorker, starting
from tests.web.browsing import Visitor
from tests.web.conftest import _program, round_trips, visitor

if TYPE_CHECKING:
    from sidekiq_celery._dashboard.side import Side
    from sidekiq_celery._dashboard.workers import Details, Worker

__all__ = ["_program", "round_trips", "visitor"]

PROJECT = "tests.compat.dashboard.project"
NODE = "w1@here"


@pytest.fixture(autouse=True)
def _fresh_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidekiq_celery._dashboard.workers._KEPT_SECONDS", 0.2)


@contextmanager
def answering(side: "Side", worker: "Worker", details: "Details") -> Iterator[None]:
    """Shows a worker that has given these answers, without asking any."""
    from sidekiq_celery._dashboard.workers import WorkersSeen  # needs the extra `web`

    watch = side.details._watch(worker.name)
    watch._value, watch._began_at = details, float("inf")
    side.details._watched[worker.name] = watch
    side.workers._value, side.workers._began_at = WorkersSeen({worker.name: worker}), float("inf")
    try:
        yield
    finally:
        side.workers._value, side.workers._began_at = None, float("-inf")
        side.details._watched.clear()


@pytest.fixture
def operator(visitor: Callable[..., Visitor]) -> Visitor:
    """Somebody who may act."""
    return visitor("operator")


@pytest.fixture
def app(redis_url: str) -> Celery:
    """Sends tasks of the project, by name."""
    return Celery("sender", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])


@pytest.fixture
def start_worker(redis_url: str) -> Iterator[StartWorker]:
    """`start_worker()`: a worker of the project, with threads."""
    with starting(PROJECT, redis_url) as start:
        yield lambda *words, **more: start("-P", "threads", "-c", "2", "-n", NODE, *words, **more)
