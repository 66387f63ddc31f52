"""Changes the limits of tasks in a running worker: `rate_limit` and `time_limit`."""

import logging
from inspect import iscoroutinefunction
from typing import Any

from sidekiq_celery._admission import rate_limits
from sidekiq_celery._run.time_limits import problem_with
from sidekiq_celery.worker.commands import control_command, nok, ok
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_py.payloads import escaped
from sidekiq_py.worker import registry

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


@control_command(
    args=[("task_name", str), ("soft", float), ("hard", float)], signature="<task_name> <soft_secs> [hard_secs]"
)
def time_limit(
    state: Any, task_name: str | None = None, hard: float | None = None, soft: float | None = None, **kwargs: Any
) -> dict[str, str]:
    """Tell worker(s) to modify the time limit for task by type."""
    task = state.app.tasks.get(task_name)
    if task is None:
        logger.error("Change time limit attempt for unknown task %s", escaped(str(task_name)))
        return nok("unknown task")
    if (problem := problem_with(hard=hard, soft=soft)) is not None:
        return nok(f"{problem}; nothing was changed")
    pool = state.remote_control.worker.pool_name
    if hard and pool != "prefork" and not iscoroutinefunction(task.run):
        return nok(f"-P {pool} cannot enforce a hard limit; nothing was changed. Use -P prefork, or set soft alone")
    state.remote_control.tell_all("limits", task_name=task_name, hard=hard, soft=soft)
    # Messages arrive in order: a process that answers this one has the limits, so they hold for tasks sent later.
    state.remote_control.ask_children("heard")
    logger.info("New time limits for tasks of type %s: soft=%s hard=%s", task_name, soft, hard)
    return ok("time limits set successfully")


@on_message("limits")
def set_limits(recipient: Recipient, task_name: str, hard: float | None, soft: float | None) -> None:
    """
    Set the limits for runs of a task that start from now on. None means no limit.

    Raises:
        ValueError: A limit is not a number of seconds.
    """
    if (problem := problem_with(hard=hard, soft=soft)) is not None:
        raise ValueError(problem)
    task = recipient.worker.app.tasks[task_name]
    former = task.__dict__.get("_former_limits", ())
    # Calls made elsewhere carry the limits that the task has there.
    task._former_limits = (*former, (task.time_limit, task.soft_time_limit))
    task.time_limit, task.soft_time_limit = hard, soft
    definition = registry.find(task_name) if recipient.launcher is not None else None
    if definition is not None:
        definition.take_limits()  # type: ignore[attr-defined]
