"""
What instrumentation reads in a payload: the class, and whether it is a task of `sidekiq_celery`, which instrumentation
for Celery may already cover.
"""

import sys
from collections.abc import Mapping
from typing import Any

from sidekiq_py.registry import registry


def class_of(payload: Mapping[str, Any]) -> str:
    """The class of a job; of an Active Job, the one in its wrapper."""
    return str(payload.get("wrapped") or payload.get("class"))


def is_celerys_task(payload: Mapping[str, Any]) -> bool:
    """
    True for a task in a program where `import celery` imports `sidekiq_celery`.

    Only then does instrumentation for Celery see our tasks. Without the import alias it has instrumented the real
    Celery, if that is installed, and does not see them.
    """
    celery = sys.modules.get("celery")
    if celery is None or celery is not sys.modules.get("sidekiq_celery"):
        return False
    if "celery" in payload:
        return True
    # A task that Ruby has enqueued has no `celery` key.
    job_class = payload.get("class")
    definition = registry.find(job_class) if isinstance(job_class, str) else None
    return type(definition).__module__.startswith("sidekiq_celery.")
