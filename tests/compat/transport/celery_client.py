"""A client of the real Celery: sends calls of `project` and prints what becomes of them."""

import json
import os
import time
from typing import Any

from celery import chain, chord
from celery.exceptions import TimeoutError as NoResult
from celery.result import AsyncResult
from project import add, app, flaky, total

WAIT_SECONDS = 90
LOOK_AGAIN_SECONDS = 5


def result_of(call: AsyncResult) -> Any:
    """
    What came of a call.

    Celery 5.7 subscribes on one connection and looks for the result on another, without waiting for the first: a
    result that comes between the two is not told of. Each `get` looks anew.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return call.get(timeout=LOOK_AGAIN_SECONDS)
        except NoResult:
            if time.monotonic() > deadline:
                raise


seen = {
    "call": result_of(add.delay(1, 2)),
    "chain": result_of(chain(add.s(1, 2), add.s(4), add.s(8)).delay()),
    "chord": result_of(chord([add.s(number, number) for number in range(10)], total.s()).delay()),
    "retries": result_of(flaky.delay(2)),
    "countdown": result_of(add.apply_async((3, 4), countdown=0.5)),
    "compressed": result_of(add.apply_async(("a", "b"), compression="gzip")),
    "ping": [],
}
if "WITHOUT_CONTROL" not in os.environ:
    seen["ping"] = [answer for reply in app.control.ping(timeout=30, limit=1) for answer in reply.values()]
print(json.dumps(seen))
