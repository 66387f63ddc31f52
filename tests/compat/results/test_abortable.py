"""Tasks that look whether they are still wanted."""

import time

from sidekiq_celery import Celery
from sidekiq_celery.contrib.abortable import AbortableAsyncResult, AbortableTask

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually


def test_a_task_is_asked_to_end_while_it_runs(app: Celery, redis_url: str) -> None:
    """It ends by itself, and what it returns then is its result."""

    @app.task(bind=True, base=AbortableTask, name="proj.count", track_started=True)
    def count(self: AbortableTask[[], int]) -> str:
        give_up_at = time.monotonic() + 60
        while not self.is_aborted() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        return "aborted" if self.is_aborted() else "never asked"

    worker = TaskWorker(app, redis_url)
    worker.start()
    try:
        result = count.delay()
        assert isinstance(result, AbortableAsyncResult)
        eventually(lambda: result.state == "STARTED")
        assert not result.is_aborted()

        result.abort()

        assert result.get(timeout=60) == "aborted"
    finally:
        worker.stop()
