"""A call of a task, as it is handed on from `apply_async` and `send_task` until it is bytes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ("NO_WORKFLOW", "Call", "WorkflowPosition")


class WorkflowPosition(NamedTuple):
    """What a call is told of the workflow that it is part of; nothing, for most."""

    task_id: str | None
    group_id: str | None
    group_index: int | None
    root_id: str | None
    parent_id: str | None
    chord: Any
    chain: Any
    reply_to: str | None


NO_WORKFLOW = WorkflowPosition(None, None, None, None, None, None, None, None)


class Call(NamedTuple):
    """
    One call.

    Args:
        name: Of the task.
        task: None where only its name is known.
        options: Of the route and of the push, the task's own among them if *task* is given.
        message: What else the message is made of, by the names of `as_task_v2`: countdown, callbacks and the like.
        result_cls: Of what is returned.
        producer: Told to the backend.
        add_to_parent: The task that makes the call is to have it among its children.
        route_name, router: In place of the name, and of the app's routes.
    """

    name: str
    args: Any
    kwargs: Any
    task: Any
    position: WorkflowPosition
    options: Mapping[str, Any]
    message: Mapping[str, Any]
    result_cls: Any
    producer: Any = None
    add_to_parent: bool = True
    route_name: str | None = None
    router: Any = None
