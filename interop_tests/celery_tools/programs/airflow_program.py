"""Writes what Airflow's executor reports about a workload that no worker can read."""

import os

import sides
from airflow.providers.celery.executors.celery_executor_utils import BulkStateFetcher, app


def wait():
    sides.wait_for(app)


def main():
    result = app.tasks["execute_workload"].apply_async(args=("no json",), queue="default")
    try:
        result.get(timeout=sides.ENDS)
    except Exception as error:  # noqa: BLE001 - what is reported
        sides.write(str(error).partition(">")[0])
    [(state, _)] = BulkStateFetcher(1).get_many([result]).values()
    sides.write(f"state {state}")
    sides.write(f"workers {len(app.control.inspect(timeout=2).active_queues() or [])}")
    assert os.environ["SIDE"] in ("celery", "alias")
