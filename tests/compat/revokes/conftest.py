"""An app and a worker that runs its tasks, in this process; and workers of `project`, started by the command line."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest
from sidekiq_celery import Celery, _state, signals
from sidekiq_celery.app.publish import client_of

from tests.compat.tasks.conftest import app as plain_app
from tests.compat.tasks.conftest import worker
from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

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
def start(redis_url: str) -> Iterator[Callable[..., SidekiqProcess]]:
    """`start("-P", "threads", processes=1)` starts a worker and waits until its processes are registered."""
    environment = {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)), "PYTHONUNBUFFERED": "1"}
    with ExitStack() as stack:

        def run(*arguments: str, processes: int = 1) -> SidekiqProcess:
            command = [sys.executable, "-m", "sidekiq_celery", "-A", _PROJECT, "worker", *arguments]
            one = SidekiqProcess(command, redis_url=redis_url, environment=environment)
            stack.callback(one.print_log_tail)
            stack.callback(lambda: one.kill() if one.is_running else None)
            return one.start().wait_until_ready(processes=processes)

        yield run


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    finalizers, current = dict(_state._on_app_finalizers), _state._tls.current_app
    receivers = list(signals.task_revoked.receivers or ())
    sys.modules.pop(_PROJECT, None)
    module = importlib.import_module(_PROJECT)
    yield module
    let_go(module.app)
    module.app.close()
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)
    _state._set_current_app(current)
    signals.task_revoked.receivers = receivers
    sys.modules.pop(_PROJECT, None)
