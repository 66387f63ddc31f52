"""
The guides' project, and a worker of its own, started as the guides do.

Server and worker live as long as the tests of this folder, so no test here takes a fixture
that empties the shared one.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import redis
from sidekiq_celery import _state

from tests.support.celery_program import StartWorker, command, environment, starting
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

PROJECT = "tests.compat.documentation.proj"
WAIT_SECONDS = 60
_QUEUES = "celery,hipri,lopri,priority.high"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="package")
def guide_redis(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server for the tests of this folder alone."""
    pytest.importorskip("pydantic", reason="a task of the guides takes models")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="package")
def guide_worker(guide_redis: RedisServer) -> Iterator[SidekiqProcess]:
    """`sidekiq-celery -A proj worker --loglevel=INFO`, with two processes and some queues."""
    arguments = ("-A", PROJECT, "worker", "--loglevel=INFO", "-c", "2", "-Q", _QUEUES)
    worker = SidekiqProcess(command(*arguments), redis_url=guide_redis.url, environment=environment())
    with worker:
        yield worker.wait_until_ready(processes=2)
        worker.print_log_tail()


@pytest.fixture(scope="package")
def _modules(guide_redis: RedisServer) -> Iterator[tuple[ModuleType, ModuleType]]:
    before = os.environ.get("REDIS_URL")
    os.environ["REDIS_URL"] = guide_redis.url
    finalizers = dict(_state._on_app_finalizers)
    current = _state.default_app, _state._tls.current_app, _state._latest_current
    proj, tasks = (importlib.import_module(f"{PROJECT}.{name}") for name in ("celery", "tasks"))
    _state.default_app, _state._tls.current_app, _state._latest_current = current
    yield proj, tasks
    proj.app.close()
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)
    for name in ("celery", "tasks"):
        sys.modules.pop(f"{PROJECT}.{name}", None)
    os.environ.pop("REDIS_URL")
    if before is not None:
        os.environ["REDIS_URL"] = before


@pytest.fixture
def app(_modules: tuple[ModuleType, ModuleType]) -> Iterator[object]:
    """The project's app, current, with a Redis whose queues are empty."""
    app = _modules[0].app
    app.set_current()
    changes = dict(app.conf.changes)
    yield app
    app.conf.changes.clear()
    app.conf.changes.update(changes)
    app.amqp.flush_routes()


@pytest.fixture
def proj(app: object, _modules: tuple[ModuleType, ModuleType]) -> ModuleType:
    """The project's tasks; nobody works on them."""
    return _modules[1]


@pytest.fixture
def tasks(proj: ModuleType, guide_worker: SidekiqProcess) -> ModuleType:
    """The project's tasks, with the worker that runs them."""
    return proj


@pytest.fixture
def client(guide_redis: RedisServer) -> Iterator[redis.Redis]:
    """Of the guides' server."""
    client = redis.Redis.from_url(guide_redis.url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def noted(client: redis.Redis) -> Callable[..., list[str]]:
    """`noted("hooks", 3)` waits for that many lines of the tasks, and forgets them."""

    def read(key: str, count: int = 1) -> list[str]:
        name = f"noted:{key}"
        eventually(lambda: client.llen(name) >= count, within_seconds=WAIT_SECONDS)
        lines = client.lrange(name, 0, -1)
        client.delete(name)
        return list(map(str, lines))

    return read


@pytest.fixture
def run(guide_redis: RedisServer) -> Run:
    """Runs `sidekiq-celery …` to its end."""

    def run_command(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **environment(REDIS_URL=guide_redis.url)}
        return subprocess.run(
            command(*arguments), env=env, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, **more
        )

    return run_command


@pytest.fixture
def start(guide_redis: RedisServer) -> Iterator[StartWorker]:
    """Starts another worker, `start("-Q", "feeds")`, and ends it after the test."""
    with starting(PROJECT, guide_redis.url) as start:
        yield start
