"""Signatures that will never run because an earlier task failed: write their results and fail their chords."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from sidekiq_celery import states
from sidekiq_celery._send import flow_store, pipeline_buffer
from sidekiq_celery._wire.chord_part import chord_id_of, is_part
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.json_values import for_payload, with_marked_floats
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.own_routes import route_of
from sidekiq_celery._workflow.signature import maybe_signature
from sidekiq_celery.backends import failures
from sidekiq_celery.backends.interface import effects_for
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.extension import Effect, Once

FAIL_TASK = "celery.chord_fail"

logger = logging.getLogger("celery.app.trace")


def never_runs(
    app: App,
    request: Context,
    sig: Any,
    exc: BaseException,
    state: str = states.FAILURE,
    traceback: str | None = None,
    *,
    is_step: bool = False,
) -> list[Effect]:
    """
    The effects to write for *sig* and for everything that it would have called.

    Args:
        request: The request of the task that has ended.
        is_step: True if *sig* follows that task in its chain. With `result_extended`, its call is stored as well.
    """
    sig = maybe_signature(sig, app=app)
    effects: list[Effect] = []
    if kinds.is_chord(sig):
        effects += never_runs(app, request, sig.body, exc, state, traceback, is_step=is_step)
    elif kinds.is_group(sig) or kinds.is_chain(sig):
        for member in sig.tasks:
            effects += never_runs(app, request, member, exc, state, traceback)
    else:
        of_the_call = _as_request(sig) if is_step else None
        effects += result_stored(app, sig.task, sig.id, exc, state, traceback, of_the_call)
        effects += chord_failed(app, request, sig.options.get("chord"), sig.options.get("group_id"), sig.id, exc)
    for step in readable_steps(app, request, sig.options.get("chain")):
        effects += never_runs(app, request, step, exc, state, traceback)
    return effects


def readable_steps(app: App, request: Context, chain: Any) -> Iterator[dict[str, Any]]:
    """The steps of a `chain`, up to the first that another program has overwritten."""
    try:
        yield from flow_store.walk(app, chain)
    except InvalidTaskError as error:
        _log_unreadable(request, error)


def _log_unreadable(request: Context, error: InvalidTaskError) -> None:
    logger.error("%s: what waits for it in its workflow is not told that it failed: %s", request.id, error)


def _as_request(sig: Any) -> Context:
    """The request that a step would have had, as far as it is known."""
    options = sig.options
    return Context({**sig, **options, "id": sig.id, "group": options.get("group_id")})


def result_stored(
    app: App,
    name: str,
    task_id: str | None,
    result: Any,
    state: str,
    traceback: str | None = None,
    request: Context | None = None,
) -> list[Effect]:
    """The effects that store a task's result. If results are not in this Redis, the result is stored immediately."""
    if not task_id:
        return []
    task = app._tasks.get(name)
    backend = app.backend if task is None else task.backend
    effects = effects_for(backend, task_id, state, result, traceback, request)
    if effects is None:
        backend.store_result(task_id, result, state, traceback=traceback, request=request)
    return effects or []


def chord_failed(
    app: App, request: Context, chord: Any, group_id: str | None, task_id: str | None, exc: BaseException
) -> list[Effect]:
    """
    The effects to write when a part of a chord has failed. The first failure enqueues a task that fails the body.

    Args:
        request: The request of the task that has ended.
        chord: The part's `chord` option; the body itself if a real Celery client sent it.
        task_id: The part's task id.
    """
    chord_id = chord_id_of(chord, group_id)
    if chord_id is None:
        return []
    try:
        record = flow_store.read_chord(app, chord_id)
    except InvalidTaskError as error:
        _log_unreadable(request, error)
        return []
    body = record.body if is_part(chord) else chord
    if record.is_done or body is None:
        return []
    failing = app.tasks[FAIL_TASK]
    with pipeline_buffer.buffering() as jobs:
        failing.apply_async(
            (_as_json(body), _reason(task_id, exc), _plain(exc)),
            **route_of(app, body, request),
            add_to_parent=False,
        )
    key = flow_store.chord_key(chord_id)
    pushes = pipeline_buffer.commands(app, jobs, request)
    return [Once(key, flow_store.DONE, (*pushes, ("EXPIRE", key, flow_store.AFTERGLOW_SECONDS)))]


def _as_json(body: Any) -> Any:
    try:
        return with_marked_floats(body) or body
    except TypeError:
        # A real Celery client may pickle what JSON lacks. The body is not called any more, so a text will do instead.
        body = json.loads(json.dumps(body, default=safe_repr, skipkeys=True))
        return with_marked_floats(body) or body


def _reason(task_id: str | None, exc: BaseException) -> str:
    """The failure's text. A custom `__repr__` may raise, or return text that UTF-8 cannot encode."""
    return f"Dependency {task_id} raised {safe_repr(exc)}".encode(errors="backslashreplace").decode()


def _plain(exc: BaseException) -> dict[str, Any]:
    plain: dict[str, Any] = failures.as_plain(exc, "json", lambda value: for_payload(flow_store.as_text(value)))
    return plain
