"""
A call without options, such as `delay()` makes: from a template, and not by way of routes, message and marks.

What such calls of one task send differs in arguments, id and times; all else is made once, by the long way itself, and
again when something has changed that it came from. The long way is taken wherever anybody could tell: in a task, a
workflow or a transaction, with listeners to publish signals, client middleware, routers that look at arguments, and
where something is wrong with the call.
"""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from sidekiq_celery import gathering, signals
from sidekiq_celery.app.items import item_of_call
from sidekiq_celery.app.pushing import push_ready, pushing_client
from sidekiq_celery.app.routes import MapRoute
from sidekiq_celery.app.templates import NO_MARKS, Template, marks_json, template_of
from sidekiq_celery.message import as_task_v2
from sidekiq_celery.payload import KEY, encoded_arguments
from sidekiq_celery.utils.ids import uuid
from sidekiq_py import program
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery
    from sidekiq_py.client import Client

__all__ = ("sent",)

# Options of a task from which what is sent follows for all its calls.
_CONSTANT = frozenset({"ignore_result", "queue", "serializer", "soft_time_limit", "time_limit"})
_SCALARS = (str, int, float)


class _PlainCall(NamedTuple):
    """
    What is common to the plain calls of a task.

    Args:
        made_from: What it follows from.
        options: The task's.
        marks, marks_with_kwargs: JSON of the object `celery`; empty where there is none.
    """

    made_from: tuple[Any, ...]
    options: dict[str, Any]
    template: Template
    marks: bytes
    marks_with_kwargs: bytes


def sent(
    app: "Celery", task: Any, args: Any, kwargs: Any, options: dict[str, Any], producer: Any = None
) -> str | None:
    """
    Send a call for which nobody has given options.

    Args:
        options: The task's own.
        producer: Told to the backend.

    Returns:
        Its id; None if it has to go the long way, and nothing was sent.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
    """
    if signals.before_task_publish.receivers or signals.after_task_publish.receivers or not program.is_plain:
        return None
    if gathering.gathered() is not None or app.current_worker_task is not None or getattr(task, "unique_for", None):
        return None
    client = pushing_client(app, task.__sidekiq_job__)
    if client.middleware:
        return None
    call = _call_of(app, client, task, options)
    if call is None:
        return None
    try:
        arguments, _ = encoded_arguments(args or (), kwargs, "json", None)
        task_id = uuid()
        marks = call.marks_with_kwargs if kwargs else call.marks
        job = call.template.job(task_id, arguments, marks)
    except (TypeError, AttributeError, ArgumentTypeError, ArgumentValueError):
        # The long way says what is wrong with them.
        return None
    if not options.get("ignore_result"):
        app.backend.on_task_call(producer, task_id)
    push_ready(app, client, job)
    return task_id


def _call_of(app: "Celery", client: "Client", task: Any, options: dict[str, Any]) -> _PlainCall | None:
    """What is common to the plain calls of *task*, as things are now; None if they cannot be told from that."""
    conf = app.conf
    serializer = options.get("serializer") or conf.task_serializer
    if serializer != "json" or conf.task_compression or conf.task_send_sent_event:
        return None
    # The origin names the process; routes are prepared anew with another router.
    made_from = (conf.task_default_queue, app.amqp.destinations, task.max_retries, task.ignore_result, os.getpid())
    known: _PlainCall | None = task.__dict__.get("_plain_call")
    is_known = known is not None and known.made_from == made_from and known.options == options
    if known is not None and is_known and template_of(client, task, known.template.item) is known.template:
        return known
    made = _made(app, client, task, options, made_from)
    if made is not None:
        task.__dict__["_plain_call"] = made
    return made


def _made(
    app: "Celery", client: "Client", task: Any, options: dict[str, Any], made_from: tuple[Any, ...]
) -> _PlainCall | None:
    given = {key: value for key, value in options.items() if value is not None}
    if not _CONSTANT.issuperset(given) or not all(isinstance(value, _SCALARS) for value in given.values()):
        return None
    if any(type(route) is not MapRoute for route in app.amqp.destinations.routes):
        return None
    first, second = (_item(app, task, given) for _ in range(2))
    if first is None or second is None or first.get(KEY) != second.get(KEY):
        return None
    marks = first.get(KEY) or {}
    template = template_of(client, task, first)
    return _PlainCall(
        made_from,
        dict(options),
        template,
        marks_json(marks, template) if marks else NO_MARKS,
        marks_json({"kw": True, **marks}, template),
    )


def _item(app: "Celery", task: Any, given: dict[str, Any]) -> dict[str, Any] | None:
    """A call as the long way would send it; None if it goes there with more than its marks."""
    limits = {key: given[key] for key in ("time_limit", "soft_time_limit") if key in given}
    queue, others = app.amqp.destinations.find({"queue": given.get("queue")}, task.name, (), {}, task)
    if others:
        return None
    message = as_task_v2(
        app, uuid(), task.name, ignore_result=given.get("ignore_result"), shows_arguments=False, **limits
    )
    item = item_of_call(app, task.name, message, queue, task, "json", None)
    return item if Template.takes(item) else None
