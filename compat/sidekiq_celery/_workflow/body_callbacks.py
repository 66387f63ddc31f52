"""Callbacks given to a chord as a whole: they are attached to its body."""

from typing import Any

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import clone_with_members, maybe_signature
from sidekiq_celery.utils.functional import maybe_list


def with_callbacks(body: Any, options: dict[str, Any]) -> Any:
    """
    Move `link` and `link_error` from *options* to a chord's body.

    Returns:
        *body*, or a copy of it if there are any callbacks.
    """
    callbacks = maybe_list(options.pop("link", None)) or []
    errbacks = maybe_list(options.pop("link_error", None)) or []
    if callbacks or errbacks:
        body = clone_with_members(body)
    for callback in callbacks:
        copy = clone_with_members(maybe_signature(callback, app=body._app))
        if kinds.is_empty_group(body):
            body.append_to_list_option("link", copy)
        else:
            body.link(copy)
    for errback in errbacks:
        if kinds.is_group(body):
            link_error_to_body_tasks(body, maybe_signature(errback, app=body._app))
        else:
            body.append_to_list_option("link_error", errback)
    return body


def link_error_to_body_tasks(sig: Any, errback: Any, runs_as_group: bool = True) -> None:
    """
    Link *errback* to each task of a body that is a group, but not to the header of a chord inside it.

    Args:
        runs_as_group: False for a group inside a group, which is dissolved together with its options. The errbacks of
            a group that does run replace those of its tasks, so *errback* is added to the group's.
    """
    if kinds.is_chord(sig):
        link_error_to_body_tasks(sig.body, errback)
    elif not kinds.is_group(sig):
        sig.link_error(errback.clone())
    elif runs_as_group and sig.options.get("link_error") is not None:
        sig.append_to_list_option("link_error", errback.clone())
    else:
        for task in sig.tasks:
            link_error_to_body_tasks(task, errback, runs_as_group=False)
