"""
The real Celery's side: `python celery_side.py <URL> <what>`, run by a Python that has it.

`watch` reads events until a worker goes offline, then prints what its `State` made of them. `work` is a worker that
calls one task by itself.
"""

import json
import sys

from celery import Celery
from celery.signals import worker_ready

url, what = sys.argv[1:]
app = Celery("real", broker=url, backend=url)


@app.task(name="proj.add")
def add(a: int, b: int) -> int:
    return a + b


@worker_ready.connect
def call(**_: object) -> None:
    add.apply_async((1, 2), task_id="by-itself")


def watch() -> None:
    state = app.events.State()
    seen = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection)

        def take(event: dict) -> None:
            seen.append(event["type"])
            state.event(event)
            receiver.should_stop = event["type"] == "worker-offline"

        receiver.handlers["*"] = take
        receiver.capture(wakeup=False)
    tasks = {
        uuid: {"name": task.name, "state": task.state, "args": task.args, "result": task.result,
               "exception": task.exception, "worker": task.worker.hostname}
        for uuid, task in state.itertasks()
    }  # fmt: skip
    print(json.dumps({"tasks": tasks, "seen": seen}))


if what == "watch":
    watch()
else:
    app.worker_main(["worker", "-P", "solo", "-E", "-n", "real@here", "--without-gossip", "--without-mingle"])
