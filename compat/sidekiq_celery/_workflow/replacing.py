"""`Task.replace` and `Task.add_to_chord`: a running task replaces itself, or adds a task to its chord."""

from typing import Any

from sidekiq_celery._send.flow_store import add_parts, is_chain_position
from sidekiq_celery._wire.chord_part import is_part, part
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.chain import _chain
from sidekiq_celery._workflow.chord_headers import count_parts
from sidekiq_celery._workflow.maps import chunks
from sidekiq_celery._workflow.signature import signature
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.functional import maybe_list


def replacement(task: Any, sig: Any) -> Any:
    """
    Prepare *sig* to replace a task: it takes over the task's id, callbacks, chord and the rest of its chain.

    Raises:
        ImproperlyConfigured: *sig* is already part of a chord, or is an empty chain.
    """
    request = task.request
    if "chord" in sig.options:
        raise ImproperlyConfigured("A signature replacing a task must not be part of a chord")
    if isinstance(sig, _chain) and not getattr(sig, "tasks", True):
        raise ImproperlyConfigured("Cannot replace with an empty chain")
    sig = _with_one_end(task, sig)
    for callback in maybe_list(request.callbacks) or []:
        sig.link(callback)
    for errback in maybe_list(request.errbacks) or []:
        sig.link_error(errback)
    if isinstance(sig, _chain) and "link" in sig.options:
        # On the last task they run at the right time, even if the chain grows below. On both they would run twice.
        last = sig.tasks[-1].options.setdefault("link", [])
        last.extend(maybe_list(sig.options.pop("link")))
    sig.freeze(request.id)
    nesting = request.get("replaced_task_nesting", 0) + 1
    sig.set(
        chord=request.chord,
        group_id=request.group,
        group_index=request.group_index,
        root_id=request.root_id,
        replaced_task_nesting=nesting,
    )
    if isinstance(sig, _chain):
        for step in maybe_list(sig.tasks) or []:
            step.set(replaced_task_nesting=nesting)
    for following in reversed(request.chain or []):
        if is_chain_position(following):
            # The rest of the workflow is stored in Redis, and stays there.
            sig.options["chain"] = [following]
            continue
        step = signature(following, app=task.app)
        step.set(replaced_task_nesting=nesting)
        sig |= step
    return sig


def _with_one_end(task: Any, sig: Any) -> Any:
    """Turn chunks, and whatever ends in a group, into a chord with one end, to which callbacks can be linked."""
    if isinstance(sig, chunks):
        # In Celery they are sent under other ids, and whatever waits for the replaced task may wait forever.
        sig = sig.group()
    end = task.app.tasks["celery.accumulate"].s(index=0)
    if isinstance(sig, _chain) and sig.tasks and kinds.ends_in_group(sig.tasks[-1]):
        # In Celery, too, the chain itself changes.
        sig.tasks = [*sig.tasks[:-1], sig.tasks[-1] | end]
    elif kinds.ends_in_group(sig):
        sig |= end
    return sig


def add_to_chord(task: Any, sig: Any, lazy: bool) -> Any:
    """
    Add *sig* as a part to the running task's chord.

    Args:
        lazy: True to prepare *sig* without sending it.

    Raises:
        ValueError: The running task is not part of a chord.
    """
    request = task.request
    if not request.chord:
        raise ValueError("Current task is not member of any chord")
    chord = request.chord
    if is_part(chord):
        chord = part(chord["id"], add_parts(task.app, chord["id"], count_parts(sig)))
    sig.set(group_id=request.group, group_index=request.group_index, chord=chord, root_id=request.root_id)
    task.backend.add_to_chord(request.group, sig.freeze())
    return sig if lazy else sig.delay()
