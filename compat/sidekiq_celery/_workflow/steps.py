"""
Calls the next steps when a task ends: stored signatures, with the task's result before their arguments.

It does the same as `Signature.apply_async`, but skips its layers if no program has overridden any of them: in a chain
of small tasks they cost more than the tasks.
"""

from collections.abc import Mapping
from typing import Any

from sidekiq_celery._send import plain_calls
from sidekiq_celery._send.call import Call, WorkflowPosition
from sidekiq_celery._wire.context import Context
from sidekiq_celery._workflow.links import lineage
from sidekiq_celery._workflow.signature import Signature, maybe_signature
from sidekiq_celery.contract import App

# The options that a signature has only because of its position in a workflow.
_OF_A_POSITION = frozenset(WorkflowPosition._fields) - {"chain"}


def call_step(app: App, signature: Any, result: Any, request: Context, chain: Any = None, nesting: int = 0) -> None:
    """
    Publish a signature.

    Args:
        signature: A dict, or a `Signature`.
        result: The first argument, unless the signature is immutable.
        request: The request of the task that has ended.
        chain: The steps after it.
        nesting: How often an earlier step was replaced (`replaced_task_nesting`).

    Raises:
        Exception: The signature cannot be published.
    """
    if nesting or not _is_sent_plainly(app, signature, result, request, chain):
        behind = {} if chain is None else {"chain": chain}
        if nesting:
            behind["replaced_task_nesting"] = nesting
        maybe_signature(signature, app=app).apply_async((result,), **behind, **lineage(app, request))


def _is_sent_plainly(app: App, signature: Any, result: Any, request: Context, chain: Any) -> bool:
    options = _options_of_a_plain_call(app, signature)
    if options is None:
        return False
    task = app._tasks[signature["task"]]
    args = tuple(signature["args"]) if signature.get("immutable") else (result, *signature["args"])
    kwargs = signature["kwargs"]
    task._check_call(args, kwargs)
    place = {"root_id": request.root_id or request.id, "parent_id": request.id, "chain": chain}
    position = WorkflowPosition(**{**options, **place})
    own = {**task._get_exec_options(), "ignore_result": task.ignore_result}
    return plain_calls.send(app, Call(task.name, args, kwargs, task, position, own, {}, task.AsyncResult)) is not None


def _options_of_a_plain_call(app: App, signature: Any) -> Mapping[str, Any] | None:
    """The options of a signature whose call runs no overridden code. Returns None for any other signature."""
    if type(signature) not in (dict, Signature) or signature.get("subtask_type"):
        return None
    options: Mapping[str, Any] = signature.get("options") or {}
    task = app._tasks.get(signature["task"])
    if task is None or not _OF_A_POSITION.issuperset(options) or "args" not in signature or "kwargs" not in signature:
        return None
    is_plain = is_called_directly(app, task) and task._dump_pydantic_arguments is None
    return options if is_plain else None


def is_called_directly(app: App, task: Any) -> bool:
    """
    Whether a call of *task* runs no code that a program or package has put in place of ours.

    Args:
        task: The task; None if only its name is known.
    """
    kind: Any = type(task)
    kind_of_app: Any = type(app)
    is_ours = (
        kind_of_app.send_task is kind_of_app._own_send_task
        and Signature.apply_async is Signature._own_apply_async
        and "send_task" not in app.__dict__
    )
    if task is None or not is_ours:
        return is_ours
    return (
        # Other objects that a program registers as tasks do not have it.
        getattr(kind, "_own_apply_async", None) is kind.apply_async
        and kind.shadow_name is kind._own_shadow_name
        and "apply_async" not in task.__dict__
    )
