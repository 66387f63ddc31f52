"""An app and a worker that runs its tasks, in this process; and workers of `project`, started by the command line."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from sidekiq_celery import Celery
from sidekiq_celery._send.clients import client_of

from tests.compat.tasks.conftest import app as plain_app
from tests.compat.tasks.conftest import worker
from tests.support.celery_program import StartWorker, imported, starting

__all__ = ("plain_app", "project", "start", "worker")

_PROJECT = "tests.compat.revokes.project"


def let_go(app: Celery) -> None:
    """Close the connections of its client and its results; kombu keeps its own for all apps."""
    client_of(app).close()
    app.backend._pool.close()


@pytest.fixture
def app(plain_app: Celery) -> Iterator[Celery]:
    """On the shared Redis, its results too."""
    yield plain_app
    let_go(plain_app)


@pytest.fixture
def start(redis_url: str) -> Iterator[StartWorker]:
    """`start("-P", "threads", processes=1)` starts a worker and waits until its processes are registered."""
    with starting(_PROJECT, redis_url) as start:
        yield start


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    with imported(_PROJECT, redis_url, monkeypatch) as module:
        yield module
        let_go(module.app)
