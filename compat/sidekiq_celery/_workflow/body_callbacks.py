"""Callbacks that are given for a chord as a whole: they are its body's."""

from typing import Any

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import clone_with_members, maybe_signature
from sidekiq_celery.utils.functional import maybe_list

__all__ = ("link_error_to_body_tasks", "with_callbacks")


def with_callbacks(body: Any, options: dict[str, Any]) -> Any:
    """
    Put `link` and `link_error`, which are taken out of *options*, on a chord's body.

    Returns:
        *body*, or a copy if there are any.
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
    Let *errback* be called for each task of a body that is a group, and not for the header of a chord in it.

    Args:
        runs_as_group: Not a group in a group: it is dissolved, and its options with it. Errbacks of a group that is run
            take the place of those of its tasks, so they are added to.
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
