"""Apps, ears and workers for tests of events."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.events.outbox import outbox_of

from tests.compat.events.event_monitor import EventMonitor, listening
from tests.support.celery_program import StartWorker, imported, starting

PROJECT = "tests.compat.events.project"


@pytest.fixture
def make_app(redis_url: str) -> Iterator[Callable[..., Celery]]:
    """Makes apps on the shared Redis; their outboxes are closed after the test."""
    made: list[Celery] = []

    def make(url: str = redis_url, **settings: Any) -> Celery:
        app = Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])
        app.conf.update(settings)
        made.append(app)
        return app

    yield make
    for app in made:
        outbox_of(app).close()
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    """An app."""
    return make_app()


@pytest.fixture
def monitor(redis_url: str) -> Iterator[EventMonitor]:
    """Hears all that monitors of the shared Redis are told."""
    with listening(redis_url) as ear:
        yield ear


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    with imported(PROJECT, redis_url, monkeypatch) as module:
        yield module
        outbox_of(module.app).close()


@pytest.fixture
def start(redis_url: str) -> Iterator[StartWorker]:
    """`start("-E", processes=2)` starts a worker of the project and waits until its processes are registered."""
    with starting(PROJECT, redis_url) as start:
        yield start
