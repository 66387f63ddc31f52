"""
The end of a chord's part: its result is written, and the last part enqueues the body.

Both happen in the script that ends the part's job. So there is no moment when a part has ended but is not counted, or
when all parts are counted but the body is not enqueued.
"""

from collections.abc import Mapping
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._send import flow_store, pipeline_buffer
from sidekiq_celery._send.clients import pushing_client, refuse
from sidekiq_celery._wire.chord_part import NUMBER, chord_id_of, is_part
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.json_values import for_payload
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.chord_headers import enclosed
from sidekiq_celery._workflow.links import lineage
from sidekiq_celery._workflow.never import chord_failed
from sidekiq_celery._workflow.own_routes import route_of
from sidekiq_celery._workflow.signature import maybe_signature
from sidekiq_celery._workflow.steps import call_step, is_called_directly
from sidekiq_celery.contract import App
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import JsonParseError
from sidekiq_py.extension import Command, Effect, Join, Outgoing

START_TASK = "celery.chord_start"

# Marks the place in a payload for what only the last part's script can know. It never occurs in user data.
_PLACEHOLDER = f"sidekiq_celery:{uuid()}"


def after_success(app: App, request: Context, retval: Any) -> list[Effect]:
    """Write the part's result, and prepare the body in case this part is the last one."""
    chord = request.chord
    chord_id = chord_id_of(chord, request.group)
    if chord_id is None:
        return []
    record = flow_store.recall_chord(app, chord_id)
    if record.is_done:
        return []
    if is_part(chord):
        number, parts, body = chord[NUMBER], record.parts, record.body
    else:
        number, parts, body = request.group_index or 0, _celerys_size(app, chord, chord_id), chord
    key = flow_store.chord_key(chord_id)
    effects: list[Effect] = [("HSET", key, number, _part(app, chord, retval))]
    if not is_part(chord):
        effects.append(("EXPIRE", key, flow_store.TTL_SECONDS))
    if parts and body is not None:
        then = (*_body_commands(app, request, body), *_swept(key))
        effects.append(Join(key, flow_store.DONE, parts, f'"{_PLACEHOLDER}"'.encode(), then))
    return effects


def after_failure(app: App, request: Context, exc: BaseException, traceback: str | None, state: str) -> list[Effect]:
    """Fail the chord."""
    return chord_failed(app, request, request.chord, request.group, request.id, exc)


def _part(app: App, chord: dict[str, Any], retval: Any) -> bytes:
    """
    A part's result, in the form in which it goes into the body's arguments.

    Raises:
        kombu.exceptions.EncodeError: It cannot be written as the JSON of payloads, which Ruby reads.
    """
    try:
        value = app.backend.prepare_value(retval) if hasattr(retval, "as_tuple") else retval
        text = for_payload(flow_store.as_text(value))
    except (TypeError, UnicodeEncodeError, JsonParseError) as error:
        refuse(error, f"the result cannot be a part of a chord: {error}")
    return enclosed(chord, text)


def _body_commands(app: App, request: Context, body: Any) -> list[Command]:
    """The commands that enqueue the body itself, or a task that calls it."""
    children = list(request.children)
    jobs = _body_jobs(app, request, body)
    # The body is a child of the last part to end, which may be another one than this.
    request.children[:] = children
    return pipeline_buffer.commands(app, jobs, request)


def _body_jobs(app: App, request: Context, body: Any) -> pipeline_buffer.PipelineBuffer:
    sig = maybe_signature(body, app=app)
    results = [_PLACEHOLDER]
    if _is_pushed_as_it_is(app, sig):
        with pipeline_buffer.buffering() as jobs:
            call_step(app, sig, results, request)
        # A route may choose another serializer, or a compression.
        if sig.immutable or _have_a_place_for_results(jobs):
            return jobs
    with pipeline_buffer.buffering() as jobs:
        _call_start_task(app, request, results, body, route_of(app, sig, request))
    return jobs


def _have_a_place_for_results(jobs: pipeline_buffer.PipelineBuffer) -> bool:
    return any(isinstance(job, Outgoing) and _PLACEHOLDER.encode() in job.payload for job in jobs)


def _call_start_task(app: App, request: Context, results: Any, body: Any, route: Mapping[str, Any]) -> None:
    """
    Call it past everything that watches calls, except client middleware, whose additions any job may need. It has the
    part's headers, so that the body continues its trace.
    """
    own: Any = app
    own._own_send_task(
        START_TASK,
        (results, body),
        task_type=app.tasks[START_TASK],
        ignore_result=True,
        headers=dict(request.headers or {}),
        **{**lineage(app, request), **route},
    )


def _is_pushed_as_it_is(app: App, sig: Any) -> bool:
    """
    Whether every part prepares the body itself, as any part may be the last.

    False if that is expensive, if the body is not sent as JSON, or if a receiver, middleware or another `apply_async`
    than ours must see it only once: one that takes a lock would find the lock of the part before.
    """
    if kinds.is_group(sig) or kinds.is_chord(sig) or kinds.is_chain(sig):
        return False
    is_json = _option_of(app, sig, "serializer") == "json"
    listening = signals.has_publish_receivers()
    has_listeners = bool(listening or app.conf.task_send_sent_event)
    is_compressed = bool(_option_of(app, sig, "compression"))
    is_direct = is_called_directly(app, app._tasks.get(sig.task))
    return is_json and not is_compressed and not has_listeners and is_direct and not pushing_client(app).middleware


def _option_of(app: App, sig: Any, name: str) -> Any:
    """The option with which *sig* is sent, unless a route has another one."""
    task = app._tasks.get(sig.task)
    return sig.options.get(name) or getattr(task, name, None) or app.conf[f"task_{name}"]


def _swept(key: str) -> list[Command]:
    """The commands that reduce a finished chord to its `done` mark. To free 100,000 results takes 57 ms with DEL."""
    return [
        ("UNLINK", key),
        ("HSET", key, flow_store.DONE, "1"),
        ("EXPIRE", key, flow_store.AFTERGLOW_SECONDS),
    ]


def _celerys_size(app: App, body: Any, group_id: str) -> int:
    """The number of parts that a real Celery client has sent; 0 while it is still sending."""
    if body.get("chord_size"):
        return int(body["chord_size"])
    backend = app.backend
    if not hasattr(backend, "get_key_for_group"):
        return 0
    size = backend.get(backend.get_key_for_group(group_id, ".s"))
    return int(size or 0)
