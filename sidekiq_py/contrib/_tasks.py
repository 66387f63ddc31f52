"""Tasks of `sidekiq_celery`, which instrumentation made for Celery may see already."""

import sys
from collections.abc import Mapping
from typing import Any

from sidekiq_py.registry import registry


def is_celerys_task(payload: Mapping[str, Any]) -> bool:
    """
    A task, in a program where `import celery` gives `sidekiq_celery`: only then what instruments Celery sees ours.

    Without the import alias it has instrumented the real Celery, if that is installed, and our tasks go unseen.
    """
    celery = sys.modules.get("celery")
    if celery is None or celery is not sys.modules.get("sidekiq_celery"):
        return False
    if "celery" in payload:
        return True
    # A task that Ruby has enqueued bears no mark.
    job_class = payload.get("class")
    definition = registry.find(job_class) if isinstance(job_class, str) else None
    return type(definition).__module__.startswith("sidekiq_celery.")
