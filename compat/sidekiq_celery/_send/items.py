"""Turns a call's message into the item that the engine's client pushes."""

import math
import time
from typing import Any

from sidekiq_celery._send.clients import refuse
from sidekiq_celery._send.header_checks import sorted_out
from sidekiq_celery._wire.json_values import to_plain
from sidekiq_celery._wire.message import TaskMessage, aware
from sidekiq_celery._wire.payload import KEY, encoded_arguments, task_headers_of_message
from sidekiq_celery._wire.priorities import step_queue, steps
from sidekiq_celery._wire.ruby_headers import RUBY_OPTION, report_of
from sidekiq_celery.contract import App

# Set by a workflow; a caller does not give them as options.
_OF_ITS_WORKFLOW = frozenset({"correlation_id", "group", "parent_id", "root_id"})


def item_of_call(
    app: App,
    name: str,
    message: TaskMessage,
    queue: str,
    task: Any,
    serializer: str,
    compression: str | None,
) -> dict[str, Any]:
    """
    The item for the client's `push`.

    Args:
        queue: The queue's name, without a suffix for the priority.
        task: The task; None if only its name is known.

    Raises:
        kombu.exceptions.EncodeError: An argument or a callback cannot be sent.
        TypeError: A header cannot be sent. kombu encodes headers with the message, and passes on json's own error.
    """
    headers, properties, (args, kwargs, _), _ = message
    of_ruby = properties.pop(RUBY_OPTION, None)
    if of_ruby is not None or getattr(task, "_is_sent_as_json", False):
        serializer, compression = "json", None
    try:
        plain, task_headers = encoded_arguments(args, kwargs, serializer, compression)
        task_headers |= task_headers_of_message(message, getattr(task, "ignore_result", None))
        if task is None and headers.get("ignore_result") is not None:
            # The task's own setting, which this one overrides, is not known here.
            task_headers["ignore_result"] = bool(headers["ignore_result"])
    except TypeError as error:
        to_plain([headers, properties])
        refuse(error)
    item = {**item_of_message(app, name, message, queue, task), "args": plain}
    if of_ruby is not None:
        if kwargs:
            refuse(
                TypeError(f"{name} is a Ruby job, which has no keyword arguments; give it an object as the last one")
            )
        item |= of_ruby
        task_headers["report"] = report_of(app, headers["id"], bool(headers.get("ignore_result")))
    if task_headers:
        _, refusal = sorted_out({name: mark for name, mark in task_headers.items() if name not in _OF_ITS_WORKFLOW})
        if refusal is not None:
            refuse(TypeError(f"no worker would run this call of {name}: {refusal}"))
        item[KEY] = task_headers
    return item


def item_of_message(app: App, name: str, message: TaskMessage, queue: str, task: Any) -> dict[str, Any]:
    """
    The item for the client's `push`, without arguments and task headers.

    Args:
        queue: The queue's name, without a suffix for the priority.
        task: The task; None if only its name is known.
    """
    headers, properties, _, _ = message
    priority = properties.get("priority")
    item: dict[str, Any] = {
        "queue": step_queue(queue, priority, steps(app)) if priority else queue,
        "class": name if task is None else task,
        "args": [],
        "jid": headers["id"],
    }
    if task is not None:
        # In the form that Ruby's Retries page understands.
        item["retry"] = True if task.max_retries in (None, math.inf) else int(task.max_retries) or False
    if headers.get("eta"):
        at = aware(headers["eta"]).timestamp()
        if at > time.time():
            item["at"] = at
    return item
