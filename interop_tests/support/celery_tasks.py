"""Tasks of a team that migrated from Celery, run by `sidekiq-py worker -r` beside real Ruby."""

import os
from typing import Any

import redis
from sidekiq_celery import Celery
from sidekiq_celery.worker.registering import register_tasks

from interop_tests.support.ledger import LEDGER

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")

app = Celery("team", broker=URL, backend=URL, set_as_current=False, fixups=[])


@app.task(name="TeamTask", bind=True, shared=False, default_retry_delay=600, max_retries=1)
def team_task(self: Any, what: str, *args: Any, **kwargs: Any) -> Any:
    """Do what the first argument says."""
    if what == "note":
        note(self.request.id, args, kwargs)
        return "noted"
    raise self.retry(exc=ValueError("not yet"))


def note(*facts: Any) -> None:
    """Write a line that tests read."""
    client = redis.Redis.from_url(URL)
    client.rpush(LEDGER, repr(facts))
    client.close()


def serve() -> None:
    """Register the tasks in the worker that imports this module."""
    register_tasks(app)


if os.environ.get("TEAM_TASKS_SERVE"):
    serve()
