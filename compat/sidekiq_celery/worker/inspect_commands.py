"""Commands that report on a worker without changing anything, and the one that stops it."""

import logging
from collections.abc import Mapping
from typing import Any

from sidekiq_celery._admission import rate_limits
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.serialization import jsonify, safe_repr, strtobool
from sidekiq_celery.worker.commands import control_command, inspect_command, nok, ok
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_celery.worker.running import tasks_of
from sidekiq_celery.worker.stats import memory_report, memory_text, stats_of
from sidekiq_celery.worker.task_info import waiting_jobs
from sidekiq_py.payloads import escaped

logger = logging.getLogger("celery.worker.control")

_TASK_INFO = ("exchange", "routing_key", "rate_limit")


# ---- the worker


@inspect_command(default_timeout=0.2)
def ping(state: Any, **kwargs: Any) -> dict[str, str]:
    """Ping worker(s)."""
    return ok("pong")


@inspect_command()
def stats(state: Any, **kwargs: Any) -> dict[str, Any]:
    """Request worker statistics/information."""
    return stats_of(state.remote_control)


@inspect_command()
def report(state: Any, **kwargs: Any) -> dict[str, str]:
    """Information about the installation for bug reports."""
    return ok(state.app.bugreport())


@inspect_command(alias="dump_conf", signature="[include_defaults=False]", args=[("with_defaults", strtobool)])
def conf(state: Any, with_defaults: bool = False, **kwargs: Any) -> Any:
    """List configuration."""
    return jsonify(
        state.app.conf.table(with_defaults=with_defaults),
        keyfilter=lambda key: isinstance(key, str) and not key.startswith("__"),
        unknown_type_filter=safe_repr,
    )


@inspect_command()
def clock(state: Any, **kwargs: Any) -> dict[str, int]:
    """Get current logical clock value."""
    return {"clock": state.app.clock.value}


@inspect_command(visible=False)
def hello(state: Any, from_node: str, revoked: Any = None, **kwargs: Any) -> dict[str, Any] | None:
    """Greet a worker that is starting. There are no revokes to exchange: they are kept in Redis."""
    if from_node == state.hostname:
        return None
    return {"revoked": [], "clock": state.app.clock.forward()}


@inspect_command()
def active_queues(state: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """List the task queues a worker is currently consuming from."""
    return [dict(queue.as_dict(recurse=True)) for queue in state.app.amqp.queues.consume_from.values()]


@inspect_command()
def memsample(state: Any, **kwargs: Any) -> str:
    """Sample current RSS memory usage."""
    return memory_text(state.remote_control)


@inspect_command(args=[("samples", int)], signature="[n_samples=10]")
def memdump(state: Any, samples: int = 10, **kwargs: Any) -> str:
    """Dump statistics of previous memsample requests."""
    return memory_report(state.remote_control, samples)


@inspect_command(visible=False, args=[("object_type", str), ("num", int), ("max_depth", int)])
def objgraph(state: Any, **kwargs: Any) -> dict[str, str]:
    """Not supported: use a memory profiler such as memray on a process."""
    return nok("objgraph is not supported here; run a memory profiler such as memray on one of the worker's processes")


@control_command()
def shutdown(state: Any, msg: str = "Got shutdown from remote", **kwargs: Any) -> dict[str, str]:
    """Shutdown worker(s)."""
    state.remote_control.tell_parent("stop", msg=str(msg))
    return ok("shutting down")


@on_message("stop")
def stop(recipient: Recipient, msg: str) -> None:
    """Stop warmly, as TERM does. Unlike a second TERM, a second call does not hurry the shutdown."""
    logger.warning("%s", escaped(msg))
    if recipient.supervisor is not None:
        recipient.supervisor.ask_to_stop()
    elif recipient.launcher is not None:
        recipient.launcher.ask_to_stop()


@control_command(visible=False)
def election(state: Any, **kwargs: Any) -> None:
    """Do nothing: workers here hold no elections, but Celery's workers beside them may call one."""


# ---- its tasks


@inspect_command(alias="dump_active")
def active(state: Any, safe: bool = False, **kwargs: Any) -> list[dict[str, Any]]:
    """List of tasks currently being executed."""
    return [_shown(about, safe) for about in tasks_of(state.remote_control)["active"]]


@inspect_command(alias="dump_reserved")
def reserved(state: Any, safe: bool = False, **kwargs: Any) -> list[dict[str, Any]]:
    """List of currently reserved tasks, not including scheduled/active."""
    return [_shown(about, safe) for about in tasks_of(state.remote_control)["reserved"]]


@inspect_command(alias="dump_schedule")
def scheduled(state: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """List of currently scheduled ETA/countdown tasks."""
    return waiting_jobs(state.app, state.hostname)


@inspect_command(variadic="ids", signature="[id1 [id2 [... [idN]]]]")
def query_task(state: Any, ids: Any, **kwargs: Any) -> dict[str, Any]:
    """Query for task information by id."""
    wanted = set(maybe_list(ids))
    found: dict[str, Any] = {}
    if wanted:
        for entry in waiting_jobs(state.app, state.hostname):
            about = entry["request"]
            if about["id"] in wanted:
                found[about["id"]] = ["scheduled", about]
    for where, tasks in tasks_of(state.remote_control).items():
        found.update({about["id"]: [where, about] for about in tasks if about["id"] in wanted})
    return found


@inspect_command(alias="dump_tasks", variadic="taskinfoitems", signature="[attr1 [attr2 [... [attrN]]]]")
def registered(state: Any, taskinfoitems: Any = None, builtins: bool = False, **kwargs: Any) -> list[str]:
    """List of registered tasks."""
    items = [
        item for item in maybe_list(taskinfoitems) or _TASK_INFO if isinstance(item, str) and not item.startswith("_")
    ]
    names = sorted(name for name in state.app.tasks if builtins or not name.startswith("celery."))
    # In Celery a command changes the task itself, so its limit shows up here.
    limits = rate_limits.limits_set(state.app) if "rate_limit" in items else {}
    return [_described(state.app.tasks[name], items, limits) for name in names]


def _described(task: Any, items: list[str], limits: Mapping[str, Any]) -> str:
    given = {item: getattr(task, item, None) for item in items}
    if task.name in limits:
        given["rate_limit"] = limits[task.name]
    shown = " ".join(f"{item}={value}" for item, value in given.items() if value is not None)
    return f"{task.name} [{shown}]" if shown else str(task.name)


def _shown(about: dict[str, Any], safe: bool) -> dict[str, Any]:
    if not safe:
        return about
    args = about["args"]
    return {
        **about,
        "args": safe_repr(tuple(args)) if isinstance(args, list) else args,
        "kwargs": safe_repr(about["kwargs"]),
    }
