"""
What programs import from the module in which Celery's workers take up messages.

`logger` writes that a worker has received a task; programs set its level. The functions read messages of protocol 1,
for programs that consume these themselves.

Source: Celery 5.7.0, `celery.worker.strategy`.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from sidekiq_celery._run.task_log import incoming as logger
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.saferepr import saferepr

__all__ = ("default", "hybrid_to_proto2", "logger", "proto1_to_proto2")

_HEADERS = (
    *("lang", "task", "id", "root_id", "parent_id", "group", "meth", "shadow", "eta", "expires", "argsrepr"),
    *("kwargsrepr", "origin"),
)


def default(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: a worker has no strategies here. Editors import the name into programs that have no use for it."""
    raise NotImplementedError("sidekiq_celery's workers have no strategies; use hooks of tasks and signals instead")


def hybrid_to_proto2(message: Any, body: Mapping[str, Any]) -> tuple[tuple[Any, Any, Any], dict[str, Any], bool, Any]:
    """
    Body, headers, True and `utc` of a message that has a body of protocol 1 and headers of protocol 2.

    Raises:
        InvalidTaskError: Its keyword arguments are not a mapping.
    """
    call = _call_of(body)
    headers = {name: body.get(name) for name in _HEADERS}
    headers |= {"retries": body.get("retries", 0), "timelimit": body.get("timelimit", (None, None))}
    return call, headers | (message.headers or {}), True, body.get("utc", True)


def proto1_to_proto2(message: Any, body: dict[str, Any]) -> tuple[tuple[Any, Any, Any], dict[str, Any], bool, Any]:
    """
    The same for a message of protocol 1. *body* is changed into the headers.

    Raises:
        InvalidTaskError: Its keyword arguments are not a mapping.
    """
    call = _call_of(body)
    body |= {"argsrepr": saferepr(call[0]), "kwargsrepr": saferepr(call[1]), "headers": message.headers}
    if "taskset" in body:
        body["group"] = body["taskset"]
    return call, body, True, body.get("utc", True)


def _call_of(body: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    args, kwargs = body.get("args", ()), body.get("kwargs", {})
    if not hasattr(kwargs, "items"):
        raise InvalidTaskError("Task keyword arguments must be a mapping")
    return args, kwargs, {**{name: body.get(name) for name in ("callbacks", "errbacks", "chord")}, "chain": None}
