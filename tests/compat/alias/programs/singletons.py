"""celery-once and celery-singleton: a task that is on its way is not sent again."""

import sys
import threading

from celery import Celery, chord
from celery.contrib.testing.worker import start_worker
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import Singleton

URL = sys.argv[1]
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    worker_hijack_root_logger=False,
    singleton_backend_url=URL,
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": URL, "default_timeout": 60}},
)
release = threading.Event()


@app.task(base=QueueOnce, once={"keys": ["number"]})
def once(number, word="a"):
    return number


@app.task(base=Singleton)
def single(number):
    release.wait(60)
    return number


@app.task
def same(number):
    return number


@app.task(base=QueueOnce)
def total_once(numbers):
    return sum(numbers)


@app.task(base=Singleton)
def single_total(numbers):
    return sum(numbers)


first = once.delay(5)
try:
    once.delay(5, word="b")
except AlreadyQueued as refused:
    assert refused.countdown > 0  # noqa: PT017
else:
    raise AssertionError("the second call was sent")

with start_worker(app, pool="threads", concurrency=2, loglevel=0):
    assert first.get(timeout=60) == 5
    # Its lock went when it ended.
    assert once.delay(5).get(timeout=60) == 5

    running = single.delay(1)
    assert single.delay(1).id == running.id
    assert single.delay(2).id != running.id
    release.set()
    assert running.get(timeout=60) == 1

    # Each takes its lock once, although any part of the chord may be the one that calls it.
    for body in (total_once, single_total):
        assert chord([same.s(number) for number in range(4)], body.s())().get(timeout=60) == 6
print("done")
