"""
The real Celery's side: `python celery_side.py <URL> <what> [<id> …]`, run by a Python that has it.

`store` writes results of every kind, `read` prints what it sees of each id, `wait` says "waiting" and prints the
values as they come, `group` prints the members of a saved group.
"""

import json
import os
import sys
from datetime import datetime, timezone
from decimal import Decimal

from celery import Celery
from celery.app.task import Context
from celery.exceptions import MaxRetriesExceededError, SoftTimeLimitExceeded

url, what, *ids = sys.argv[1:]
app = Celery("real", broker=url, backend=os.environ.get("RESULT_BACKEND", url))
app.conf.result_extended = True


def store() -> None:
    backend = app.backend
    request = Context(id="extended", task="proj.add", args=[1], kwargs={"b": 2}, hostname="w@h", retries=3,
                      group="g", parent_id="p", delivery_info={"routing_key": "high"})  # fmt: skip
    request.children.append(app.AsyncResult("child"))
    backend.mark_as_done("extended", {"x": [1, None]}, request=request)
    backend.mark_as_done("types", [datetime(2026, 1, 2, tzinfo=timezone.utc), Decimal("1.5"), b"\xff"])  # noqa: UP017
    backend.mark_as_failure("failure", ValueError("no", 3), traceback="Traceback …")
    backend.mark_as_failure("celerys", MaxRetriesExceededError("too often"))
    backend.mark_as_failure("billiards", SoftTimeLimitExceeded(3))
    backend.mark_as_retry("retry", KeyError("again"))
    backend.mark_as_revoked("revoked", "terminated")
    backend.store_result("progress", {"done": 3}, "PROGRESS")
    app.GroupResult("group", [app.AsyncResult("types"), app.AsyncResult("failure")]).save()


def seen(task_id: str) -> dict:
    result = app.AsyncResult(task_id)
    error = result.result
    return {
        "state": result.state,
        "result": repr(result.result),
        "module": type(error).__module__ if isinstance(error, BaseException) else None,
        "traceback": result.traceback,
        "children": [str(child) for child in result.children or []],
        "date_done": None if result.date_done is None else result.date_done.isoformat(),
        "extended": [result.name, result.args, result.kwargs, result.worker, result.retries, result.queue],
    }


if what == "store":
    store()
elif what == "read":
    print(json.dumps({task_id: seen(task_id) for task_id in ids}))
elif what == "wait":
    print("waiting", flush=True)
    print(json.dumps([repr(app.AsyncResult(each).get(timeout=60, propagate=False)) for each in ids]))
elif what == "group":
    [group_id] = ids
    print(json.dumps([member.id for member in app.GroupResult.restore(group_id)]))
