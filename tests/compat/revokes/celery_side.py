"""
The real Celery's side: `python celery_side.py <URL> <command> <id>`, run by a Python that has it.

`revoke` and `terminate` print the workers' replies, `revoked` the ids that they know of.
"""

import json
import sys

from celery import Celery

url, what, task_id = sys.argv[1:]
app = Celery("real", broker=url, backend=url)

if what == "revoked":
    print(json.dumps(app.control.inspect(timeout=10, limit=1).revoked()))
else:
    print(
        json.dumps(
            app.control.revoke(task_id, terminate=what == "terminate", signal="KILL", reply=True, timeout=30, limit=1)
        )
    )
