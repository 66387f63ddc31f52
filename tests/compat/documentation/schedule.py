"""The program of Celery's guide "Periodic Tasks", with shorter intervals."""

import os
from typing import Any

import redis
from sidekiq_celery import Celery, group
from sidekiq_celery.schedules import crontab

URL = os.environ["REDIS_URL"]
app = Celery("periodic", broker=URL, backend=URL)
# The worker of the other guides serves the default queue, and knows none of these tasks.
app.conf.task_default_queue = "periodic"


@app.on_after_configure.connect
def setup_periodic_tasks(sender: Celery, **kwargs: Any) -> None:
    """By hand, once the settings are there."""
    sender.add_periodic_task(0.2, test.s("hello"), name="add every 10")
    sender.add_periodic_task(0.3, test.s("again"), name="add every 30")
    sender.add_periodic_task(0.2, run_add_group.s(), name="add group every 30", expires=60)
    sender.add_periodic_task(crontab(hour=7, minute=30, day_of_week=1), test.s("Happy Mondays!"))


app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": f"{__name__}.add", "schedule": 0.2, "args": (16, 16)},
    "add-every-monday-morning": {
        "task": f"{__name__}.add",
        "schedule": crontab(hour=7, minute=30, day_of_week=1),
        "args": (16, 16),
    },
}
app.conf.timezone = "UTC"


def note(key: str, text: object) -> None:
    """Leave a line for the test."""
    client = redis.Redis.from_url(URL)
    client.rpush(f"noted:{key}", str(text))
    client.close()


@app.task
def test(arg: str) -> None:
    """Says what it is given."""
    note("said", arg)


@app.task
def add(x: int, y: int) -> None:
    """Says the sum."""
    note("sums", x + y)


@app.task
def run_add_group() -> None:
    """A workflow, on a schedule."""
    group(add.s(i, i) for i in range(2)).apply_async()
