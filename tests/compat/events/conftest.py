"""Apps, ears and workers for tests of events."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.events.outbox import outbox_of

from tests.compat.events.heard import Heard, listening
from tests.compat.worker.conftest import environment
from tests.support.worker_process import SidekiqProcess

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
def heard(redis_url: str) -> Iterator[Heard]:
    """Hears all that monitors of the shared Redis are told."""
    with listening(redis_url) as ear:
        yield ear


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    sys.modules.pop(PROJECT, None)
    module = importlib.import_module(PROJECT)
    yield module
    outbox_of(module.app).close()
    module.app.close()
    sys.modules.pop(PROJECT, None)


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., SidekiqProcess]]:
    """`start("-E", processes=2)` starts a worker of the project and waits until its processes are registered."""
    with ExitStack() as stack:

        def run(*arguments: str, processes: int = 1, url: str = redis_url) -> SidekiqProcess:
            command = [sys.executable, "-m", "sidekiq_celery", "-A", PROJECT, "worker", *arguments]
            worker = SidekiqProcess(command, redis_url=url, environment=environment())
            stack.callback(worker.print_log_tail)
            stack.callback(lambda: worker.kill() if worker.is_running else None)
            return worker.start().wait_until_ready(processes=processes)

        yield run
