"""
The fast path for a call without options, as made by `delay()` and by the steps of a workflow. It uses a template, and
skips routes, message and headers.

Such calls of one task differ only in arguments, id, times and position in a workflow. Everything else is created once,
by the full path itself (`_send.publish`), and again when one of its inputs changes. The full path is used whenever the
difference could be observed: with receivers for publish signals, client middleware, transactions or routers that look
at arguments, and if something is wrong with the call.

The second path pays for itself. Measured alternately, `delay()` uses about half the CPU: 46 to 74 µs instead of 97 to
102 (on a loaded machine, from the calmest segments of a hundred calls). In time, medians of eight interleaved rounds
were 85 µs for a member of a group instead of 141, and 385 µs for a chain of three instead of 436.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sidekiq_celery import signals
from sidekiq_celery._config.routes import MapRoute
from sidekiq_celery._send import flow_store, producer_wrappers
from sidekiq_celery._send.call import NO_WORKFLOW, Call, WorkflowPosition
from sidekiq_celery._send.clients import definition_of, pushing_client
from sidekiq_celery._send.items import item_of_call
from sidekiq_celery._send.push_templates import Template, task_headers_json, template_of
from sidekiq_celery._send.pushing import policy_of, push_ready
from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.message import as_task_v2
from sidekiq_celery._wire.payload import KEY, encoded_arguments
from sidekiq_celery.contract import App
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError
from sidekiq_py.extension import Command
from sidekiq_py.payloads import dumps_known
from sidekiq_py.pushing import program

if TYPE_CHECKING:
    from sidekiq_py import Client

# The task options that determine what all its calls send.
_CONSTANT = ("ignore_result", "queue", "serializer", "soft_time_limit", "time_limit")
# How many variants of these options are kept for each task.
_MOST_OPTIONS = 8
_SCALARS = (str, int, float)
_TEXT = frozenset({str})


# The settings that decide whether the fast path may be used, and what is sent.
_SETTINGS = (
    *("task_always_eager", "task_compression", "task_send_sent_event"),
    *("task_inherit_parent_priority", "task_serializer"),
)


class _PlainCall(NamedTuple):
    """
    What the plain calls of a task have in common.

    Args:
        made_from: The inputs that it was made from.
        options: The task's options.
        constant: The `celery` object, without a workflow position and without what keyword arguments add.
        is_text: True if that object contains only strings.
        task_headers, task_headers_with_kwargs: The object's JSON for calls without a workflow position.
    """

    made_from: tuple[Any, ...]
    options: dict[str, Any]
    template: Template
    constant: dict[str, Any]
    is_text: bool
    task_headers: bytes
    task_headers_with_kwargs: bytes


class _Job(NamedTuple):
    """
    The job for a call.

    Args:
        kept: Commands to write before it.
    """

    template: Template
    task_id: str
    arguments: list[Any]
    task_headers: bytes
    kept: list[Command]


def send(app: App, call: Call) -> Any:
    """
    Send a call that was made without options.

    Returns:
        The handle for its result; None if it needs the full path, in which case nothing was sent.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
    """
    if signals.has_publish_receivers() or not program.is_plain or producer_wrappers.is_wrapped():
        return None
    task, position = call.task, call.position
    parent = app.current_worker_task
    conf = app.conf
    is_eager, compression, sends_event, inherits_priority, serializer = conf.values_of(_SETTINGS)
    if (
        (is_eager or compression or sends_event or (inherits_priority and parent is not None))
        or (call.options.get("serializer") or serializer) != "json"
        or getattr(task, "unique_for", None)
    ):
        return None
    definition = definition_of(task)
    client = pushing_client(app, definition)
    if client.middleware:
        return None
    if parent is not None and not (position.root_id and position.parent_id):
        position = position.below(parent.request)
    try:
        # The default queue is usually set. Read together with the others, it would force a lookup of each by itself.
        plain = _plain_call_of(app, client, task, call.options, conf["task_default_queue"])
        job = None if plain is None else _job_of(plain, call.args, call.kwargs, position)
        ready = None if job is None else job.template.job(job.task_id, job.arguments, job.task_headers)
    except (TypeError, AttributeError, ArgumentTypeError, ArgumentValueError):
        # The full path reports what is wrong with the arguments.
        return None
    if job is None or ready is None:
        return None
    is_ignored = call.options.get("ignore_result")
    if not is_ignored:
        app.backend.on_task_call(call.producer, job.task_id)
    push_ready(app, client, ready, definition, job.kept, lambda: policy_of(app))
    result = result_of(app, job.task_id, call.result_cls, is_ignored)
    if parent is not None and call.add_to_parent:
        parent.add_trail(result)
    return result


def result_of(app: App, task_id: str, result_cls: Any, is_ignored: Any) -> Any:
    """The handle for a call's result."""
    result = (result_cls or app.AsyncResult)(task_id)
    # Set as an attribute, because custom classes may not accept it as an argument.
    result.ignored = is_ignored
    return result


def _job_of(plain: _PlainCall, args: Any, kwargs: Any, position: WorkflowPosition) -> _Job | None:
    """The job for a call. Returns None if its arguments or its position are not valid."""
    args, kwargs = args or (), kwargs or {}
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        return None
    arguments, _ = encoded_arguments(args, kwargs, "json", None)
    if position == NO_WORKFLOW:
        return _Job(
            plain.template, uuid(), arguments, plain.task_headers_with_kwargs if kwargs else plain.task_headers, []
        )
    task_id, group_id, group_index, root_id, parent_id, chord, chain, reply_to = position
    ids = [one for one in (task_id, group_id, root_id, parent_id, reply_to) if one is not None]
    if not _TEXT.issuperset(map(type, ids)) or not "".join(ids).isascii():
        return None
    if group_index is not None and type(group_index) is not int:
        return None
    task_id = task_id or uuid()
    task_headers: dict[str, Any] = {"kw": True} if kwargs else {}
    if group_id:
        task_headers["group"] = group_id
    if group_index:
        task_headers["group_index"] = group_index
    if parent_id:
        task_headers["parent_id"] = parent_id
    task_headers["origin"] = plain.constant["origin"]
    if group_index == 0:
        task_headers["group_index"] = 0
    if root_id and root_id != task_id:
        task_headers["root_id"] = root_id
    task_headers |= plain.constant
    if chord:
        task_headers["chord"] = to_plain(chord)
    if reply_to and reply_to != task_id:
        task_headers["reply_to"] = reply_to
    kept: list[Command] = []
    if chain:
        task_headers["flow"], kept = flow_store.keep_steps(root_id or task_id, chain)
    elif chain is not None:
        task_headers["chain"] = []
    text = dumps_known(task_headers) if plain.is_text and not chord else task_headers_json(task_headers, plain.template)
    return _Job(plain.template, task_id, arguments, text, kept)


def _plain_call_of(
    app: App, client: "Client", task: Any, options: Mapping[str, Any], default_queue: Any
) -> _PlainCall | None:
    """What the plain calls of *task* have in common now. Returns None if they need the full path."""
    router = app.amqp.destinations
    # Programs may change the contents of a route, and not only the list of routes.
    routes = [route(task.name) if type(route) is MapRoute else route for route in router.routes]
    # The origin names the process.
    made_from = (default_queue, router, routes, task.max_retries, task.ignore_result, os.getpid())
    calls: dict[Any, _PlainCall] = task.__dict__.setdefault("_plain_calls", {})
    key = tuple(map(options.get, _CONSTANT))
    known = calls.get(key)
    is_known = known is not None and known.made_from == made_from and known.options == options
    if known is not None and is_known and template_of(client, task, known.template.item) is known.template:
        return known
    if known is None and len(calls) >= _MOST_OPTIONS:
        return None
    made = _made(app, client, task, options, made_from)
    if made is not None:
        calls[key] = made
    return made


def _made(
    app: App, client: "Client", task: Any, options: Mapping[str, Any], made_from: tuple[Any, ...]
) -> _PlainCall | None:
    given = {key: value for key, value in options.items() if value is not None}
    if not given.keys() <= set(_CONSTANT) or not all(isinstance(value, _SCALARS) for value in given.values()):
        return None
    if any(type(route) is not MapRoute for route in app.amqp.destinations.routes):
        return None
    first, second = (_item(app, task, given) for _ in range(2))
    if first is None or second is None or first[KEY] != second[KEY]:
        return None
    task_headers = first[KEY]
    template = template_of(client, task, first)
    with_kwargs = task_headers_json({"kw": True, **task_headers}, template)
    is_text = all(type(value) is str for value in task_headers.values())
    return _PlainCall(
        made_from,
        dict(options),
        template,
        task_headers,
        is_text,
        task_headers_json(task_headers, template),
        with_kwargs,
    )


def _item(app: App, task: Any, given: dict[str, Any]) -> dict[str, Any] | None:
    """A call as the full path would send it, with its origin. Returns None if it has more than task headers."""
    limits = {key: given[key] for key in ("time_limit", "soft_time_limit") if key in given}
    queue, others = app.amqp.destinations.find({"queue": given.get("queue")}, task.name, (), {}, task)
    if others:
        return None
    message = as_task_v2(
        app, uuid(), task.name, ignore_result=given.get("ignore_result"), shows_arguments=False, **limits
    )
    item = item_of_call(app, task.name, message, queue, task, "json", None)
    return item if Template.takes(item) and "origin" in item.get(KEY, {}) else None
