"""
Sending a task: routes, message, signals, payload, push.

The push is the engine's own (`sidekiq_py.client`): its client middleware, its dialect, its transactions and shards. A
failure is raised as kombu's `OperationalError`, as programs that come from Celery catch it.
"""

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from sidekiq_celery import flow_store, gathering, signals, together, unique
from sidekiq_celery.app.broker import redis_settings
from sidekiq_celery.exceptions import AlwaysEagerIgnored
from sidekiq_celery.message import TaskMessage, as_task_v2, aware
from sidekiq_celery.payload import KEY, UNIQUE, encoded_arguments, marks_of_message
from sidekiq_celery.priorities import priority_queue
from sidekiq_celery.ruby_marks import RUBY_OPTION, report_of
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.ids import uuid
from sidekiq_py import client as clients
from sidekiq_py.client import Client
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, RedisConnectionError, RedisError
from sidekiq_py.redis_access.failed_jobs import Command
from sidekiq_py.redis_access.pool import Pool
from sidekiq_py.registry import JobDefinition

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = (
    "client_of", "create_message", "definition_of", "fail", "item_of_message", "pushing_client", "send_message",
    "send_task",
)  # fmt: skip

Sent = TypeVar("Sent")

logger = logging.getLogger("celery.app.base")

_TASK_DEFAULTS = ("time_limit", "soft_time_limit", "expires")
# Options that `as_task_v2` has put into the headers.
_OF_THE_MESSAGE = ("argsrepr", "kwargsrepr", "origin", "now", "timezone")
# Of a call to kombu's producer; a push has no use for them.
_OF_THE_PRODUCER = (
    "delivery_mode", "immediate", "mandatory", "declare", "timeout", "confirm_timeout", "event_dispatcher",
    "exchange_type", "expiration",
)  # fmt: skip

_clients: "WeakKeyDictionary[Celery, Client]" = WeakKeyDictionary()


def client_of(app: "Celery") -> Client:
    """
    What pushes the tasks of *app*: to its broker; without one, to where the program is configured to push.

    Raises:
        ImproperlyConfigured: The broker is no Redis.
    """
    known = _clients.get(app)
    if known is not None:
        # As in Celery, where connections are kept too: another broker_url comes too late after the first use.
        return known
    if not app.conf.broker_write_url:
        return clients.current()
    known = _clients[app] = Client(pool=Pool(redis_settings(app)))
    return known


def close_client_of(app: "Celery") -> None:
    """Close the connections by which *app* pushes; a later push makes new ones."""
    known = _clients.pop(app, None)
    if known is not None:
        known.close()


def definition_of(task: Any) -> JobDefinition:
    """What the client knows of a task: its name, and where it is pushed to."""
    definition: JobDefinition | None = task.__dict__.get("_job_definition")
    if definition is None:
        definition = task.__dict__["_job_definition"] = JobDefinition(task.name, {}, task)
    definition.pool = client_of(task._get_app())
    return definition


def send_task(
    app: "Celery",
    name: str,
    args: Any = None,
    kwargs: Any = None,
    *,
    countdown: float | None = None,
    eta: Any = None,
    task_id: str | None = None,
    producer: Any = None,
    connection: Any = None,
    router: Any = None,
    result_cls: Any = None,
    link: Any = None,
    link_error: Any = None,
    add_to_parent: bool = True,
    group_id: str | None = None,
    group_index: int | None = None,
    retries: int = 0,
    chord: Any = None,
    reply_to: str | None = None,
    root_id: str | None = None,
    parent_id: str | None = None,
    route_name: str | None = None,
    shadow: str | None = None,
    chain: Any = None,
    task_type: Any = None,
    replaced_task_nesting: int = 0,
    **options: Any,
) -> Any:
    """
    Send a task by its name, as `Celery.send_task` says.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
        kombu.exceptions.EncodeError: An argument cannot be sent.
    """
    conf = app.conf
    task_id = task_id or uuid()
    if conf.task_always_eager:
        warnings.warn(AlwaysEagerIgnored("task_always_eager has no effect on send_task"), stacklevel=3)
    if task_type is None:
        task_type = app._tasks.get(name)
        if task_type is not None:
            options = {**_own_options(task_type), **options}
    limits = {key: options.pop(key, None) for key in _TASK_DEFAULTS}
    ignore_result = options.pop("ignore_result", None)
    is_free = not (group_id or chord or chain or retries or replaced_task_nesting) and gathering.takes_locks()
    wanted = unique.asked_for(task_type, options, is_free=is_free)
    given = {key: value for key, value in options.items() if value is not None}
    queue, options = app.amqp.destinations.find(given, route_name or name, args, kwargs, task_type, router)
    _warn_of_the_past(app, task_id, limits["expires"])
    parent = app.current_worker_task
    if parent is not None:
        root_id = root_id or parent.request.root_id or parent.request.id
        parent_id = parent_id or parent.request.id
        if conf.task_inherit_parent_priority:
            options.setdefault("priority", (parent.request.delivery_info or {}).get("priority"))
    message = create_message(
        app,
        task_id,
        name,
        args,
        kwargs,
        countdown,
        eta,
        group_id,
        group_index,
        limits["expires"],
        retries,
        chord,
        maybe_list(link),
        maybe_list(link_error),
        reply_to,
        limits["time_limit"],
        limits["soft_time_limit"],
        conf.task_send_sent_event,
        root_id,
        parent_id,
        shadow,
        chain,
        ignore_result=ignore_result,
        replaced_task_nesting=replaced_task_nesting,
        **options,
    )
    if options:
        for taken in (*(options.pop("stamped_headers", None) or ()), *_OF_THE_MESSAGE):
            options.pop(taken, None)
    if not ignore_result:
        app.backend.on_task_call(producer, task_id)
    there = send_message(app, name, message, queue, task_type=task_type, uniqueness=wanted, **options)
    result = (result_cls or app.AsyncResult)(there or task_id)
    # An attribute, as classes of programs may not take it as an argument.
    result.ignored = ignore_result
    if add_to_parent and parent is not None and there is None:
        parent.add_trail(result)
    return result


def create_message(app: "Celery", *args: Any, **kwargs: Any) -> TaskMessage:
    """The message of a call; the arguments' texts are made where somebody looks at them."""
    is_seen = bool(signals.before_task_publish.receivers or signals.after_task_publish.receivers)
    return as_task_v2(app, *args, **{"shows_arguments": is_seen, **kwargs})


def send_message(
    app: "Celery",
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
    Send a message: the two signals around the push.

    Args:
        queue: Its name. An exchange and a routing key have done their work by now; signals still tell them.
        retry: Try again where Redis was not reached, as *retry_policy* says.
        headers: The caller's own.
        uniqueness: It is not sent where the same task is there already.
        properties: What else the caller gave; it goes along.

    Returns:
        The id of the same task that is there already; None if it was sent.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
    """
    conf = app.conf
    if headers:
        message.headers.update(headers)
    if properties:
        message.properties.update({name: value for name, value in properties.items() if name not in _OF_THE_PRODUCER})
    policy = conf.task_publish_retry_policy
    if retry_policy:
        policy = {**policy, **retry_policy}
    exchange_name = getattr(exchange, "name", exchange)
    place = {"exchange": exchange_name or "", "routing_key": (routing_key if exchange_name else None) or queue}
    if signals.before_task_publish.receivers:
        signals.before_task_publish.send(
            sender=name,
            body=message.body,
            declare=None,
            headers=message.headers,
            properties=message.properties,
            retry_policy=dict(policy),
            **place,
        )
    item = _item(
        app, name, message, queue, task_type, serializer or conf.task_serializer, compression or conf.task_compression
    )
    kept = _put_aside(item.get(KEY), message)
    may_retry = conf.task_publish_retry if retry is None else retry
    if uniqueness is None:
        _push(app, item, policy if may_retry else None, kept)
    else:
        lock = unique.lock_of(uniqueness, name, task_type, *message.body[:2])
        there = _push_unique(app, item, policy if may_retry else None, lock)
        if there != item["jid"]:
            logger.info("%s[%s] was not sent: it is there already, as %s", name, item["jid"], there)
            return there
    if signals.after_task_publish.receivers:
        signals.after_task_publish.send(sender=name, body=message.body, headers=message.headers, **place)
    if message.sent_event:
        with app.events.default_dispatcher() as dispatcher:
            dispatcher.send("task-sent", queue=queue, **place, **message.sent_event)
    return None


def _own_options(task: Any) -> dict[str, Any]:
    get = getattr(task, "_get_exec_options", None)
    return {} if get is None else {key: value for key, value in get().items() if value is not None}


def _warn_of_the_past(app: "Celery", task_id: str, expires: Any) -> None:
    if expires is None:
        return
    is_moment = isinstance(expires, datetime | str)
    seconds = aware(app, expires).timestamp() - time.time() if is_moment else float(expires)
    if seconds < 0:
        logger.warning("%s has an expiration date in the past (%ss ago); it will not run", task_id, -seconds)


def _item(
    app: "Celery",
    name: str,
    message: TaskMessage,
    queue: str,
    task: Any,
    serializer: str,
    compression: str | None,
) -> dict[str, Any]:
    """What is handed to the client's `push`."""
    headers, properties, (args, kwargs, _), _ = message
    of_ruby = properties.pop(RUBY_OPTION, None)
    if of_ruby is not None:
        serializer, compression = "json", None
    try:
        plain, marks = encoded_arguments(args, kwargs, serializer, compression)
        marks |= marks_of_message(message, getattr(task, "ignore_result", None))
    except TypeError as error:
        _refuse(error)
    item = {**item_of_message(app, name, message, queue, task), "args": plain}
    if of_ruby is not None:
        if kwargs:
            _refuse(
                TypeError(f"{name} is a Ruby job, which has no keyword arguments; give it an object as the last one")
            )
        item |= of_ruby
        marks["report"] = report_of(app, headers["id"], bool(headers.get("ignore_result")))
    if marks:
        item[KEY] = marks
    return item


def item_of_message(app: "Celery", name: str, message: TaskMessage, queue: str, task: Any) -> dict[str, Any]:
    """
    What is handed to the client's `push`, but for arguments and marks.

    Args:
        queue: Its name, without a priority's step.
        task: None where only its name is known.
    """
    headers, properties, _, _ = message
    item: dict[str, Any] = {
        "queue": priority_queue(app, queue, properties.get("priority")),
        "class": name if task is None else task,
        "args": [],
        "jid": headers["id"],
    }
    if task is not None:
        # As Ruby's Retries page understands it.
        item["retry"] = True if task.max_retries is None else int(task.max_retries) or False
    if headers.get("eta"):
        at = aware(app, headers["eta"]).timestamp()
        if at > time.time():
            item["at"] = at
    return item


def _put_aside(marks: dict[str, Any] | None, message: TaskMessage) -> list[Command]:
    """Take the rest of a chain out of a payload, which says where it is kept instead; what to write for that."""
    if not marks or "chain" not in marks:
        return []
    marks["flow"], kept = flow_store.keep_steps(message.headers["root_id"], marks.pop("chain"))
    return kept


def pushing_client(app: "Celery", definition: JobDefinition | None = None) -> Client:
    """The client for a push: of `Client.via`, else of *definition*, else of *app*."""
    return clients.for_job(definition or JobDefinition("", {}, None, pool=client_of(app)))


def _push(app: "Celery", item: dict[str, Any], policy: Mapping[str, Any] | None, kept: Sequence[Command] = ()) -> None:
    """
    Push a job.

    Args:
        kept: What is to be written before it, in the same step.
    """
    client = pushing_client(app, getattr(item["class"], "__sidekiq_job__", None))
    gathered = gathering.gathered()
    try:
        if gathered is None and not kept:
            _with_retries(lambda: client.push(item), policy)
            return
        job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        _refuse(error)
    except RedisError as error:
        fail(error)
    wanted = [] if job is None else [*kept, job]
    if gathered is None:
        together.send(app, wanted)
    else:
        gathered += wanted


def _push_unique(app: "Celery", item: dict[str, Any], policy: Mapping[str, Any] | None, lock: unique.Lock) -> str:
    """Push a job with its lock; the id of the task that is there now."""
    item[KEY] = {**item.get(KEY, {}), UNIQUE: lock.mark}
    client = pushing_client(app, getattr(item["class"], "__sidekiq_job__", None))

    def sends(push: Callable[[], str]) -> str:
        try:
            return _with_retries(push, policy)
        except RedisError as error:
            fail(error)

    try:
        job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        _refuse(error)
    # A job that client middleware has stopped needs no lock.
    return item["jid"] if job is None else unique.push(client.pool, job, lock, sends)


def _with_retries(push: Callable[[], Sent], policy: Mapping[str, Any] | None) -> Sent:
    """Push; again where Redis was not reached. A push whose reply was lost is not made again: it may have arrived."""
    tries = 0
    while True:
        try:
            return push()
        except RedisConnectionError:
            limit = None if policy is None else policy.get("max_retries")
            if policy is None or (limit is not None and tries >= limit):
                raise
            pause = policy.get("interval_start", 0) + tries * policy.get("interval_step", 0.2)
            time.sleep(min(pause, policy.get("interval_max", 0.2)))
            tries += 1


def fail(error: RedisError) -> NoReturn:
    """
    Say that Redis was not reached, or refused, as programs that come from Celery expect it.

    Raises:
        kombu.exceptions.OperationalError: In any case.
    """
    from kombu.exceptions import OperationalError

    raise OperationalError(str(error)) from error


def _refuse(error: Exception) -> NoReturn:
    from kombu.exceptions import EncodeError

    raise EncodeError(str(error)) from error
