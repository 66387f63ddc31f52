"""A call of a task, in the form in which it is passed from `apply_async` and `send_task` until it becomes bytes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sidekiq_celery.utils.ids import plain_id


class WorkflowPosition(NamedTuple):
    """A call's position in the workflow that it is part of; all None for most calls."""

    task_id: str | None = None
    group_id: str | None = None
    group_index: int | None = None
    root_id: str | None = None
    parent_id: str | None = None
    chord: Any = None
    chain: Any = None
    reply_to: str | None = None

    def as_text(self) -> "WorkflowPosition":
        """The position with plain texts in place of the ids that programs may also give."""
        # Each call passes here: to call `plain_id` for all fields took 0.7 µs more.
        return WorkflowPosition._make([one if one is None or type(one) is str else plain_id(one) for one in self])

    def below(self, request: Any) -> "WorkflowPosition":
        """The position of a call that the task with *request* makes: root and parent, unless they are given."""
        root_id = self.root_id or request.root_id or request.id
        return self._replace(root_id=root_id, parent_id=self.parent_id or request.id)


NO_WORKFLOW = WorkflowPosition()


class Call(NamedTuple):
    """
    One call of a task.

    Args:
        name: The task's name.
        task: The task; None if only its name is known.
        options: Options for the route and the push, including the task's own if *task* is given.
        message: Other fields of the message, by their names in `as_task_v2`: countdown, callbacks and so on.
        result_cls: The class of the returned result handle.
        producer: Passed to the result backend.
        add_to_parent: True to add the call to the children of the task that makes it.
        route_name, router: Used instead of the name, and of the app's routes.
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
