"""Remote control of rate limits."""

import logging
from typing import Any

from sidekiq_celery._admission import rate_limits
from sidekiq_celery.worker.commands import control_command, nok, ok

logger = logging.getLogger("celery.worker.control")


@control_command(
    args=[("task_name", str), ("rate_limit", str)], signature="<task_name> <rate_limit (e.g., 5/s | 5/m | 5/h)>"
)
def rate_limit(state: Any, task_name: str, rate_limit: Any, **kwargs: Any) -> dict[str, Any]:
    """Tell worker(s) to modify the rate limit for a task by type."""
    try:
        rate_limits.set_rate_limit(state.app, task_name, rate_limit)
    except ValueError as error:
        return nok(f"Invalid rate limit string: {error!r}")
    except KeyError as error:
        return nok("unknown task" if task_name not in state.app.tasks else f"Invalid rate limit string: {error!r}")
    if not rate_limit:
        logger.info("Rate limits disabled for tasks of type %s", task_name)
        return ok("rate limit disabled successfully")
    logger.info("New rate limit for tasks of type %s: %s.", task_name, rate_limit)
    return ok("new rate limit set successfully")
