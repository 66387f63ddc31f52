"""Tasks, and a worker that runs them."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sidekiq_celery import Celery

from tests.compat.canvas.tasks import declare
from tests.compat.tasks.conftest import app, worker
from tests.compat.tasks.worker import TaskWorker

__all__ = ("app", "running", "tasks", "worker")


@pytest.fixture
def tasks(app: Celery) -> Iterator[SimpleNamespace]:
    """The tasks of `tests.compat.canvas.tasks`."""
    app.conf.task_allow_error_cb_on_chord_header = True
    yield declare(app)
    app.backend._pool.close()


@pytest.fixture
def running(tasks: SimpleNamespace, worker: TaskWorker) -> SimpleNamespace:
    """The same, with a worker that runs them."""
    worker.start()
    return tasks
