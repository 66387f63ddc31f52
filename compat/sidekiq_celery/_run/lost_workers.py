"""
Tasks whose worker has died four times while they ran.

The engine puts such a job into the dead set and calls the death handlers. The handler here fails the task:
`WorkerLostError` becomes its result, its errbacks are called, and its chord fails.
"""

import time
from collections.abc import Callable
from typing import Any

from sidekiq_celery._run.definition import JobRun, TaskDefinition
from sidekiq_celery.exceptions import WorkerLostError
from sidekiq_py.worker import Registry


def fail_lost_tasks(registry: Registry) -> Callable[[dict[str, Any], BaseException], None]:
    """A death handler for the tasks in *registry* that have failed with `PoisonPillError`."""

    def on_death(payload: dict[str, Any], error: BaseException) -> None:
        definition = registry.find_for(payload)
        if not isinstance(definition, TaskDefinition):
            return
        run = JobRun(definition, payload)
        lost = WorkerLostError(str(error))
        run.end_from_outside(lost)
        run.finish(lost, time.time())
        run.write_effects()

    return on_death
