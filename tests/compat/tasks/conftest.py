"""An app on the shared Redis, and a worker for it."""

from collections.abc import Iterator

import pytest
from sidekiq_celery import Celery, _state

from tests.compat.tasks.worker import TaskWorker


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    """An app with results on the broker's Redis."""
    known = dict(_state._on_app_finalizers)
    one = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    yield one
    one.close()
    # The tasks of one test are not to be those of the next one's app.
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(known)


@pytest.fixture
def worker(app: Celery, redis_url: str) -> Iterator[TaskWorker]:
    """Not started yet."""
    one = TaskWorker(app, redis_url, ("celery", "high"))
    yield one
    one.stop()
