"""A dashboard over the emptied server, and an app that reads and sends there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._dashboard import workers

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.web import User, asgi_app
from tests.support.celery_program import StartWorker, starting
from tests.web.browsing import Visitor
from tests.web.conftest import round_trips

__all__ = ["round_trips"]

PROJECT = "tests.compat.dashboard.project"
NODE = "w1@here"


@pytest.fixture(autouse=True)
def _program(redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_KEPT_SECONDS", 0.2)
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="8.1.7")
    yield
    sync_client.current().close()
    program.reset()


@pytest.fixture
def visitor() -> Callable[..., Visitor]:
    """Makes somebody with a role: `visitor("viewer", redaction=…)`."""

    def make(role: str = "operator", **settings: Any) -> Visitor:
        return Visitor(asgi_app(authorize=lambda _request: User("ada", role), **settings))

    return make


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
