"""
`link` and `link_error`: the signatures that are called when a task has ended.

An errback that takes more than the failed task's id is called here, in the worker, with the request, the exception and
the traceback. Other errbacks are sent as tasks.
"""

import logging
from functools import partial
from itertools import count
from typing import Any

from sidekiq_celery import states
from sidekiq_celery._wire.context import Context
from sidekiq_celery._workflow import kinds
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import NotRegistered
from sidekiq_celery.utils.functional import arity_greater
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.extension import Effect

# Celery calls a chain with the request, which cannot be put into a message, so it never runs there.
_WORKFLOWS = frozenset({kinds.CHAIN, kinds.CHORD, kinds.GROUP})

logger = logging.getLogger("celery.backends.base")


def after_success(app: App, request: Context, retval: Any) -> list[Effect]:
    """Publish the callbacks, each with the result before its arguments. Several tasks are sent as one group."""
    if not request.callbacks:
        return []
    for callback in _grouped(app, [app.signature(each) for each in request.callbacks]):
        callback.apply_async((retval,), **lineage(app, request))
    return []


def after_failure(
    app: App, request: Context, exc: BaseException, traceback: str | None, state: str = states.FAILURE
) -> list[Effect]:
    """Call the errbacks, or publish them with the id of the task that failed; after an eager task they run at once."""
    if not request.errbacks or state == states.REVOKED:
        # A revoked task has not failed. One that raises TaskRevokedError has: it waited for a task that was revoked.
        return []
    options = {"parent_id": request.id, "root_id": request.root_id or request.id}
    # Celery sends them as one group, even a single one. Here each is sent by itself, so that an error stays its own.
    group_id, position = uuid(), count()
    for errback in request.errbacks:
        signature = app.signature(errback)
        # An errback that cannot be called must not prevent the others.
        try:
            if _is_called_here(signature):
                signature(request, exc, traceback)
            elif request.is_eager:
                signature.apply((request.id,), **options)
            else:
                signature.apply_async((request.id,), group_id=group_id, group_index=next(position), **options)
        except Exception:
            logger.exception("Errback %r raised an exception", signature.name)
    return []


def _grouped(app: App, callbacks: list[Any]) -> list[Any]:
    """Put the callbacks into one group, as Celery does: a result's `children` then contain the group."""
    if len(callbacks) < 2:
        return callbacks
    groups = [callback for callback in callbacks if kinds.is_group(callback)]
    others = [callback for callback in callbacks if not kinds.is_group(callback)]
    return [*groups, kinds.group_of(others, app=app)] if others else groups


def calls_errbacks(app: App, request: Context) -> bool:
    """Whether a failure calls an errback in this process, before the job has ended."""
    return any(_is_called_here(app.signature(errback)) for errback in request.errbacks or ())


def lineage(app: App, request: Context) -> dict[str, Any]:
    """The options for tasks that follow *request*: parent, root, and the priority if it is inherited."""
    options = {"parent_id": request.id, "root_id": request.root_id or request.id}
    if app.conf.task_inherit_parent_priority:
        options["priority"] = (request.delivery_info or {}).get("priority")
    return options


def _is_called_here(errback: Any) -> bool:
    """
    Whether *errback* is a task of this process that takes more than one argument. Never true for a bound task, or for
    a workflow, whose first tasks receive the id.
    """
    if errback.subtask_type in _WORKFLOWS:
        return False
    try:
        header = getattr(errback.type, "__header__", None)
    except NotRegistered:
        return False
    if header is None or isinstance(header, partial):
        return False
    if errback.immutable or not (errback.args or errback.kwargs):
        return bool(arity_greater(header, 1))
    try:
        return bool(arity_greater(partial(header, *errback.args, **errback.kwargs), 1))
    except (TypeError, ValueError):
        return bool(arity_greater(header, 1))
