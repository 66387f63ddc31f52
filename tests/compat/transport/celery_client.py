"""A client of the real Celery: sends calls of `project` and prints what becomes of them."""

import json
import os

from celery import chain, chord
from project import add, app, flaky, total

WAIT_SECONDS = 90

seen = {
    "call": add.delay(1, 2).get(timeout=WAIT_SECONDS),
    "chain": chain(add.s(1, 2), add.s(4), add.s(8)).delay().get(timeout=WAIT_SECONDS),
    "chord": chord([add.s(number, number) for number in range(10)], total.s()).delay().get(timeout=WAIT_SECONDS),
    "retries": flaky.delay(2).get(timeout=WAIT_SECONDS),
    "countdown": add.apply_async((3, 4), countdown=0.5).get(timeout=WAIT_SECONDS),
    "compressed": add.apply_async(("a", "b"), compression="gzip").get(timeout=WAIT_SECONDS),
    "ping": [],
}
if "WITHOUT_CONTROL" not in os.environ:
    seen["ping"] = [answer for reply in app.control.ping(timeout=30, limit=1) for answer in reply.values()]
print(json.dumps(seen))
