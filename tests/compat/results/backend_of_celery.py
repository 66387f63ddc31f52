"""
A result backend built on Celery's own class, as a package's is without the alias: `python backend_of_celery.py <URL>`.

Runs a task and a chord that fails, and prints what was stored: a list of pairs of state and result.
"""

import json
import sys
import time

from celery.backends.base import BaseDictBackend
from sidekiq_celery import Celery, chord
from sidekiq_celery.contrib.testing.worker import start_worker

stored = {}


class InMemory(BaseDictBackend):
    def _store_result(self, task_id, result, state, traceback=None, request=None, **kwargs):
        stored[task_id] = (state, result if state == "SUCCESS" else result["exc_type"])
        return result

    def _get_task_meta_for(self, task_id):
        state, result = stored.get(task_id, ("PENDING", None))
        return {"status": state, "result": result}


app = Celery("proj", broker=sys.argv[1], backend=f"{__name__}:InMemory")


@app.task
def add(x, y):
    return x + y


with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
    ids = [add.delay(1, 2).id, chord([add.s(1, None)], add.s(1)).delay().id]
    give_up_at = time.monotonic() + 60
    while not stored.keys() >= set(ids) and time.monotonic() < give_up_at:
        time.sleep(0.01)
print(json.dumps([stored.get(task_id) for task_id in ids]))
