"""Sending a task: routes, message, signals, payload, push."""

import logging
import time
import warnings
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._send import flow_store, pipeline_buffer, producer_wrappers, unique
from sidekiq_celery._send.call import Call
from sidekiq_celery._send.items import item_of_call
from sidekiq_celery._send.plain_calls import result_of
from sidekiq_celery._send.pushing import publish_policy, push, push_unique
from sidekiq_celery._wire.message import TaskMessage, as_task_v2, aware, body_v1, with_body_v1
from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import AlwaysEagerIgnored
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.extension import Command

logger = logging.getLogger("celery.app.base")

_TASK_DEFAULTS = ("time_limit", "soft_time_limit", "expires")
# Options that `as_task_v2` has already put into the headers.
_OF_THE_MESSAGE = ("argsrepr", "kwargsrepr", "origin", "now", "timezone")
# Options for kombu's producer; a push does not use them.
_OF_THE_PRODUCER = (
    "delivery_mode", "immediate", "mandatory", "declare", "timeout", "confirm_timeout", "event_dispatcher",
    "exchange_type", "expiration",
)  # fmt: skip


def send_task(app: App, call: Call) -> Any:
    """
    Send a call; see `Celery.send_task`.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
        kombu.exceptions.EncodeError: An argument cannot be sent.
    """
    conf = app.conf
    if conf.task_always_eager:
        warnings.warn(AlwaysEagerIgnored("task_always_eager has no effect on send_task"), stacklevel=3)
    name, args, kwargs, task, position = call[:5]
    position = position.as_text()
    task_id = position.task_id or uuid()
    options = dict(call.options)
    if task is None:
        task = app._tasks.get(name)
        if task is not None:
            options = {**_own_options(task), **options}
    limits = {key: options.pop(key, None) for key in _TASK_DEFAULTS}
    ignore_result = options.pop("ignore_result", None)
    message_fields = call.message
    is_in_workflow = (
        position.group_id
        or position.chord
        or position.chain
        or message_fields.get("retries")
        or message_fields.get("replaced_task_nesting")
    )
    wanted = unique.asked_for(task, options, is_free=not is_in_workflow and pipeline_buffer.takes_locks())
    given = {key: value for key, value in options.items() if value is not None}
    queue, options = app.amqp.destinations.find(given, call.route_name or name, args, kwargs, task, call.router)
    _warn_of_the_past(task_id, limits["expires"])
    parent = app.current_worker_task
    if parent is not None:
        position = position.below(parent.request)
        if conf.task_inherit_parent_priority:
            options.setdefault("priority", (parent.request.delivery_info or {}).get("priority"))
    message = create_message(
        app,
        **{**position._asdict(), "task_id": task_id},
        name=name,
        args=args,
        kwargs=kwargs,
        **limits,
        **message_fields,
        create_sent_event=conf.task_send_sent_event,
        ignore_result=ignore_result,
        **options,
    )
    if options:
        for taken in (*(options.pop("stamped_headers", None) or ()), *_OF_THE_MESSAGE):
            options.pop(taken, None)
    if not ignore_result:
        app.backend.on_task_call(call.producer, task_id)
    there = send_message(app, name, message, queue, task_type=task, uniqueness=wanted, **options)
    result = result_of(app, there or task_id, call.result_cls, ignore_result)
    if call.add_to_parent and parent is not None and there is None:
        parent.add_trail(result)
    return result


def create_message(app: App, **fields: Any) -> TaskMessage:
    """The message for a call. The arguments' text is only generated if a receiver sees it."""
    return as_task_v2(app, **{"shows_arguments": signals.has_publish_receivers(), **fields})


def send_message(
    app: App,
    name: str,
    message: TaskMessage,
    queue: str,
    *,
    exchange: Any = None,
    routing_key: str | None = None,
    retry: bool | None = None,
    retry_policy: Mapping[str, Any] | None = None,
    serializer: str | None = None,
    compression: str | None = None,
    headers: Mapping[str, Any] | None = None,
    task_type: Any = None,
    uniqueness: unique.Uniqueness | None = None,
    **properties: Any,
) -> str | None:
    """
    Send a message: push it, with the signals before and after, unless its task is one of which nobody is told.

    Args:
        queue: The queue's name. Exchange and routing key have already been resolved, and are only passed to signals.
        retry: True to retry by *retry_policy* if Redis cannot be reached.
        headers: The caller's own headers.
        uniqueness: If given, the message is not sent while the same call already exists.
        properties: Any other options of the caller; they are added to the message's properties.

    Returns:
        The id of the same task that already exists; None if the message was sent.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
    """
    conf = app.conf
    if headers:
        message.headers.update(headers)
    if properties:
        message.properties.update({name: value for name, value in properties.items() if name not in _OF_THE_PRODUCER})

    def policy() -> dict[str, Any] | None:
        return publish_policy(app, retry_policy) if (conf.task_publish_retry if retry is None else retry) else None

    exchange_name = getattr(exchange, "name", exchange)
    place = {"exchange": exchange_name or "", "routing_key": (routing_key if exchange_name else None) or queue}
    is_announced = getattr(task_type, "_is_announced", True)
    is_v1 = signals.has_publish_receivers() and conf.task_protocol == 1
    body: Any = body_v1(message, utc=conf.enable_utc) if is_v1 else message.body
    if is_announced and signals.before_task_publish.receivers:
        _announce(app, name, message, queue, place, body, retry_policy)
    if is_v1:
        message = with_body_v1(message, body)

    def send() -> tuple[str, str | None]:
        item = item_of_call(
            app,
            name,
            message,
            queue,
            task_type,
            serializer or conf.task_serializer,
            compression or conf.task_compression,
        )
        kept = _keep_chain(item.get(KEY), message)
        if uniqueness is None:
            push(app, item, policy, kept)
            return item["jid"], None
        lock = unique.lock_of(uniqueness, name, task_type, *message.body[:2])
        there = push_unique(app, item, policy, lock)
        return item["jid"], None if there == item["jid"] else there

    is_wrapped = is_announced and producer_wrappers.is_wrapped()
    sent = producer_wrappers.publish(app, message, body, place, send) if is_wrapped else send()
    task_id, there = sent or (message.headers["id"], None)
    if there is not None:
        logger.info("%s[%s] was not sent: the same call already exists, as %s", name, task_id, there)
        return there
    if is_announced:
        _report_sent(app, name, task_id, message, queue, place, body)
    return None


def _announce(
    app: App,
    name: str,
    message: TaskMessage,
    queue: str,
    place: Mapping[str, str],
    body: Any,
    retry_policy: Mapping[str, Any] | None,
) -> None:
    """Send the signal before a push. *place* is the exchange and the routing key."""
    signals.before_task_publish.send(
        sender=name,
        body=body,
        declare=[_queue_of_kombu(app, queue)],
        headers=message.headers,
        properties=message.properties,
        retry_policy=publish_policy(app, retry_policy),
        **place,
    )


def _report_sent(
    app: App, name: str, task_id: str, message: TaskMessage, queue: str, place: Mapping[str, str], body: Any
) -> None:
    """Send the signals and the event that follow a push. *place* is the exchange and the routing key."""
    headers = message.headers
    if signals.after_task_publish.receivers:
        signals.after_task_publish.send(sender=name, body=body, headers=headers, **place)
    if signals.task_sent.receivers:
        args, kwargs, _ = message.body
        signals.task_sent.send(
            sender=name,
            task_id=task_id,
            task=name,
            args=args,
            kwargs=kwargs,
            eta=headers["eta"],
            taskset=headers["group"],
        )
    if message.sent_event:
        with app.events.default_dispatcher() as dispatcher:
            dispatcher.send("task-sent", queue=queue, **place, **message.sent_event)


def _own_options(task: Any) -> dict[str, Any]:
    get = getattr(task, "_get_exec_options", None)
    return {} if get is None else {key: value for key, value in get().items() if value is not None}


def _warn_of_the_past(task_id: str, expires: Any) -> None:
    if expires is None:
        return
    is_moment = isinstance(expires, datetime | str)
    try:
        seconds = aware(expires).timestamp() - time.time() if is_moment else float(expires)
    except TypeError:
        raise TypeError(f"expires is {expires!r}; give a number of seconds or a datetime") from None
    if seconds < 0:
        logger.warning("%s has an expiration date in the past (%ss ago); it will not run", task_id, -seconds)


def _queue_of_kombu(app: App, name: str) -> Any:
    queues = app.amqp.queues
    # `queues[name]` adds a missing queue, and a worker that was started without -Q would serve it.
    return queues[name] if name in queues else queues.new_missing(name)


def _keep_chain(task_headers: dict[str, Any] | None, message: TaskMessage) -> list[Command]:
    """Replace the rest of a chain in a payload with its place in Redis. Returns the commands that store it."""
    if not task_headers or "chain" not in task_headers:
        return []
    chain = task_headers.pop("chain")
    if not chain:
        if "report" not in task_headers:
            # The last step. The key moves to the end, where plain calls write it, too. In a job for Ruby, it would mean
            # that a step follows.
            task_headers["chain"] = []
        return []
    task_headers["flow"], kept = flow_store.keep_steps(message.headers["root_id"], chain)
    return kept
