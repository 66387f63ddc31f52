"""
The real Celery's side: `python celery_side.py <URL> <what>`, run by a Python that has it.

`watch` reads events until a worker goes offline, then prints what its `State` made of them. `work` is a worker that
calls one task by itself; `work-oddly` one that calls tasks with unusual ids, and sends events of a program's own.
"""

import json
import sys
from typing import Any
from uuid import UUID

from celery import Celery
from celery.signals import worker_ready

url, what = sys.argv[1:]
app = Celery("real", broker=url, backend=url)


@app.task(name="proj.add")
def add(a: int, b: int) -> int:
    return a + b


@worker_ready.connect
def call(**_: object) -> None:
    if what == "work":
        add.apply_async((1, 2), task_id="by-itself")
        return
    add.apply_async((1, 2), task_id=UUID(int=5), root_id=UUID(int=6), parent_id=7)
    report.apply_async((), task_id="reports")


@app.task(name="proj.report", bind=True)
def report(self: Any) -> None:
    self.send_event("task-progress", children=3, update="u", event="e")
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="shop") as dispatcher:
        dispatcher.send("order-update", event={}, update=[], uuid=[1], freq="daily", name=2, timestamp=1.8e12)


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
