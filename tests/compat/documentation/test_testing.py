"""Celery's guide "Testing with Celery", walked through with the import changed."""

from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.contrib.testing.worker import start_worker
from sidekiq_celery.exceptions import Retry


def test_a_task_is_called_as_a_function(proj: ModuleType) -> None:
    """Section "Tasks and unit tests"."""
    assert proj.divide(4, 2) == 2


def test_a_retry_is_patched(proj: ModuleType) -> None:
    """Section "Tasks and unit tests": `retry` gives what the test says."""
    with patch.object(type(proj.retried), "retry") as retry:
        retry.side_effect = Retry()
        with pytest.raises(Retry):
            proj.retried(3)


def test_a_task_runs_where_it_is_called() -> None:
    """Beside the guide, and what most projects do: eager mode, and `apply`."""
    app = Celery("eager", set_as_current=False)
    app.conf.task_always_eager = True

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert add.delay(1, 2).get() == 3
    assert add.apply((1, 2)).successful()


def test_a_worker_within_the_test(guide_redis: Any) -> None:
    """Section "pytest": the worker that the fixture `celery_worker` starts."""
    url = f"{guide_redis.url.rsplit('/', 1)[0]}/6"
    app = Celery("tested", broker=url, backend=url, set_as_current=False)

    @app.task
    def mul(x: int, y: int) -> int:
        return x * y

    with start_worker(app, perform_ping_check=False):
        assert mul.delay(4, 4).get(timeout=60) == 16
    app.close()
