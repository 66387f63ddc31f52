"""A program of the real Celery that has never heard of Sidekiq, but for its broker's URL; and what it runs on."""

import json
import os
import time

import redis
import sidekiq_celery.transport  # noqa: F401 - registers the schemes
from celery import Celery

app = Celery("project", broker=os.environ["BROKER"], backend=os.environ["BACKEND"])
app.conf.update(
    task_acks_late=bool(os.environ.get("ACKS_LATE")),
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    broker_transport_options=json.loads(os.environ.get("OPTIONS", "{}")),
    worker_hijack_root_logger=False,
)


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self, failures):
    if self.request.retries < failures:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task(name="HardWorker")
def hard_worker(*args):
    return list(args)


@app.task(bind=True)
def hold(self, key):
    """Say that it runs; the first run of each key lasts until its process is killed."""
    client = redis.Redis.from_url(os.environ["BACKEND"])
    runs = client.rpush(key, os.getppid())
    client.close()
    if runs == 1:
        time.sleep(600)
    return runs
