"""Registers an app's tasks where a worker looks up its jobs."""

import logging
import time
from collections.abc import Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from sidekiq_celery._admission.rate_limits import RateLimits
from sidekiq_celery._admission.worker_copy import WorkerNotices
from sidekiq_celery._run.definition import JobRun, TaskDefinition
from sidekiq_celery._run.failed_tasks import FailedTasks
from sidekiq_celery._run.too_large import refusal_of
from sidekiq_celery._run.tracer import made_by
from sidekiq_celery._run.unknown_tasks import unknown_tasks
from sidekiq_celery.app import trace
from sidekiq_celery.app.task import BaseTask
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import WorkerLostError
from sidekiq_py.errors import PoisonPillError
from sidekiq_py.worker import Hooks, Registry
from sidekiq_py.worker import hooks as program_hooks
from sidekiq_py.worker import registry as program_registry

if TYPE_CHECKING:
    from sidekiq_celery.events.task_events import TaskEvents

logger = logging.getLogger("celery.app.trace")

_MOST_NAMES = 5


def register_tasks(
    app: App,
    registry: Registry = program_registry,
    *,
    hooks: Hooks = program_hooks,
    hostname: str | None = None,
    has_hard_limits: bool = False,
    events: "TaskEvents | None" = None,
    claims_all: bool = False,
    consumer: Any = None,
) -> None:
    """
    Let a worker run the tasks of *app*. This finalizes the app.

    Args:
        registry: Where the worker looks up jobs.
        hooks: The worker's. A task whose process has died too often is reported through its death hook.
        hostname: The worker's name, for `request.hostname`.
        has_hard_limits: True if the worker runs one task per process. Otherwise `time_limit` has no effect, and one
            warning says so.
        events: Where runs are reported to monitors.
        consumer: The sender of the signals about a received job.
        claims_all: True if the worker belongs to this app alone: a job without a declared class is then an unknown
            task, whoever enqueued it.
    """
    hooks.on_death(partial(_fail_lost_task, registry), of=PoisonPillError)
    failed_tasks = FailedTasks(app)
    definitions: list[TaskDefinition] = []
    notices = WorkerNotices(app, lambda rates: limits.apply(definitions, rates))
    limits = RateLimits(app, notices.received.may_be_revoked)
    registry.on_notices = notices.received.note
    registry.on_too_large = partial(refusal_of, app)

    def define(task: Any) -> TaskDefinition:
        return TaskDefinition(
            task,
            failed_tasks,
            made_by(trace.build_tracer, task, hostname),
            revoked_by=notices.revoked_by,
            has_hard_limits=has_hard_limits,
            events=events,
            consumer=consumer,
        )

    for task in app.tasks.values():
        registry.remove(task.name)
        definition = define(task)
        definitions.append(definition)
        registry.add(definition)
    limits.apply(definitions, {})
    registry.fall_back(unknown_tasks(app, define, claims_all=claims_all))
    _log_what_has_no_effect(list(app.tasks.values()), has_hard_limits)


def register_tasks_of(
    worker: Any, registry: Registry = program_registry, hooks: Hooks = program_hooks, *, has_hard_limits: bool = False
) -> None:
    """Let a Celery-style worker run the tasks of its app."""
    register_tasks(
        worker.app,
        registry,
        hooks=hooks,
        hostname=worker.hostname,
        has_hard_limits=has_hard_limits,
        events=worker.events,
        claims_all=True,
        consumer=worker.consumer,
    )


def _fail_lost_task(registry: Registry, payload: dict[str, Any], error: BaseException) -> None:
    """
    Fail a task whose worker has died four times while it ran: `WorkerLostError` becomes its result, its errbacks are
    called, and its chord fails. The engine has put its job into the dead set.
    """
    definition = registry.find_for(payload)
    if not isinstance(definition, TaskDefinition):
        return
    run = JobRun(definition, payload)
    lost = WorkerLostError(str(error))
    run.end_from_outside(lost)
    run.finish(lost, time.time())
    run.write_effects()


def _log_what_has_no_effect(tasks: Sequence[Any], has_hard_limits: bool) -> None:
    unlimited = [
        task.name
        for task in tasks
        if task.time_limit and not iscoroutinefunction(task.run) and not task.name.startswith("celery.")
    ]
    if unlimited and not has_hard_limits:
        # A setting or an option puts the limit on all tasks, so the list may be long.
        more = f" and {len(unlimited) - _MOST_NAMES} more" if len(unlimited) > _MOST_NAMES else ""
        logger.warning(
            "time_limit of %s%s has no effect: only -P prefork can kill a task, use it or soft_time_limit",
            ", ".join(unlimited[:_MOST_NAMES]),
            more,
        )
    own = [task.name for task in tasks if task.Request != BaseTask.Request or task.Strategy != BaseTask.Strategy]
    if own:
        logger.warning(
            "Request and Strategy of %s are not used: there is no consumer here; use the hooks of the task, such as "
            "on_failure, or signals, such as task_revoked",
            ", ".join(own),
        )
