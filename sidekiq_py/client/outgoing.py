"""
From a call to bytes: the part that the blocking and the awaitable client share.

An item is completed (`wire.payload`), goes through the client middleware, has its arguments checked, and becomes an
`Outgoing`. Nothing here accesses Redis.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from sidekiq_py import program
from sidekiq_py.client.jids import new_jid
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import ArgumentTypeError, ConfigError, PayloadError
from sidekiq_py.logs import log
from sidekiq_py.middleware.chain import Chain, ClientMiddleware
from sidekiq_py.redis_access.job_path.push import Outgoing, PushBatch
from sidekiq_py.registry import JobDefinition, Payload, definition_of
from sidekiq_py.telemetry import PUSH
from sidekiq_py.wire import payload as payloads
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import check_args, dump_args, loads
from sidekiq_py.wire.json_writer import loosen
from sidekiq_py.wire.payload import absolute_at, call_item

ClientChain = Chain[ClientMiddleware]

# Each push that a middleware stops would repeat the warning.
_has_warned = False


class Order(NamedTuple):
    """
    A push that was requested.

    Args:
        fields: The item, with its class as a name.
        definition: The declared job, or None if only a name was given.
        options: The defaults for keys that *fields* lacks.
    """

    fields: dict[str, Any]
    definition: JobDefinition | None
    options: Mapping[str, Any]


def order_of_item(item: Mapping[str, Any]) -> Order:
    """
    The order for a call of `push`.

    Raises:
        PayloadError: The item is not a mapping with string keys.
    """
    if not isinstance(item, Mapping):
        raise PayloadError(f"a job must be a dict with 'class' and 'args', but this is {item!r}")
    fields = dict(item)
    for key in fields:
        if type(key) is not str:
            raise PayloadError(f"a job's keys must be strings, but {key!r} is of type {type(key).__name__}")
        if key.startswith(":"):
            raise PayloadError(f"the key {key!r} is spelled as a Ruby symbol; write {key[1:]!r}")
    job = fields.get("class")
    definition = definition_of(job)
    if definition is not None:
        fields["class"] = definition.name
        # A Celery task has no options of ours; its app's routes say where it runs.
        route = None if fields.get("queue") else getattr(job, "__sidekiq_queue__", None)
        if route is not None:
            fields["queue"] = route(fields.get("args"))
    if "at" in fields:
        fields["at"] = moment(fields["at"])
    return Order(fields, definition, options_of(definition))


def order_of_call(
    definition: JobDefinition,
    args: list[Any],
    *,
    dialect: Dialect,
    set_options: Mapping[str, Any] | None,
    interval: float | None = None,
) -> Order:
    """
    The order for a call of `perform_async`, `perform_in` or `set(...)`.

    Args:
        set_options: The options of `set(...)`, or None if it was not called.
        interval: Seconds from now or, from 1,000,000,000 on, since the epoch. `perform_in` and `perform_at` write the
            keys in another order, also if that time has passed.
    """
    is_scheduled = interval is not None
    at = None if interval is None else absolute_at(interval, now_seconds())
    fields = call_item(
        definition.name, args, dialect=dialect, set_options=set_options, at=at, is_scheduled=is_scheduled
    )
    return Order(fields, definition, options_of(definition))


def prepare(order: Order, *, dialect: Dialect, chain: ClientChain) -> Outgoing | None:
    """
    The job to send, or None if a middleware stopped it.

    Args:
        dialect: The release to follow.
        chain: The client middleware.

    Raises:
        PayloadError: The item is not a usable job.
        ArgumentError: An argument is not JSON.
    """
    payload = completed(order, dialect=dialect, chain=chain)
    return None if payload is None else as_outgoing(payload, dialect, now_seconds())


def completed(order: Order, *, dialect: Dialect, chain: ClientChain) -> Payload | None:
    """The payload that `prepare` encodes; None if a middleware stopped it."""
    fields, definition, options = order
    payload = payloads.normalize(fields, dialect=dialect, now=now_seconds(), jid=new_jid(), class_options=options)
    return through(chain, payload["class"] if definition is None else definition.job, payload)


def deferred(order: Order, dialect: Dialect, push_later: Callable[[Order], None]) -> str | None:
    """
    Delay a push until the open transaction commits. Returns its jid, or None if it must be made now.

    Args:
        push_later: Makes the push.
    """
    if program.after_commit is None:
        return None
    order = snapshot(order, dialect)
    return str(order.fields["jid"]) if waits_for_commit(partial(push_later, order)) else None


def waits_for_commit(push: Callable[[], None]) -> bool:
    """
    Have *push* called after the open transaction has been committed, with the extensions that take part in it.

    Returns:
        False if no transaction is open; the caller then pushes immediately.
    """
    around: list[AbstractContextManager[Any]] = []
    if program.after_commit is None or not program.after_commit(partial(push_within, around, push)):
        return False
    # Only asked now, because most pushes find no open transaction.
    if program.extensions.wants_pushes():
        around += program.extensions.deferred()
    return True


def push_within(around: "list[AbstractContextManager[Any]]", push: Callable[[], None]) -> None:
    with ExitStack() as entered:
        for one in around:
            entered.enter_context(one)
        push()


def snapshot(order: Order, dialect: Dialect) -> Order:
    """
    A copy with a jid and with copied arguments, for a push that is made later.

    Raises:
        ArgumentError: An argument is not JSON.
    """
    fields = dict(order.fields)
    if fields.get("jid") is None:
        fields["jid"] = new_jid()
    if isinstance(fields.get("args"), list):
        apply_strictness(fields)
        fields["args"] = loads(dump_args(fields["args"], dialect.float_text))
    return order._replace(fields=fields)


def repushed(payload: Mapping[str, Any], *, dialect: Dialect, chain: ClientChain) -> Outgoing | None:
    """
    A stored payload, prepared for another push, or None if a middleware stopped it.

    As in Ruby, middleware gets the class's name, and the job is scheduled if it has an `at`, which a middleware may
    have set; if that time is past, it goes to its queue.
    """
    now = now_seconds()
    again = payloads.prepare_repush(payload, dialect=dialect, now=now, jid=new_jid())
    kept = through(chain, again["class"], again)
    if kept is None:
        return None
    at = kept.get("at")
    if not (isinstance(at, (int, float)) and payloads.is_finite(at) and now < at):
        kept.pop("at", None)
    score, raw = payloads.encode(kept, dialect=dialect, now=now)
    return Outgoing(kept["jid"], kept["queue"], score, raw)


def options_of(definition: JobDefinition | None) -> Mapping[str, Any]:
    """The defaults for keys that an item lacks."""
    defaults = program.default_job_options
    if definition is None:
        return defaults
    return {**defaults, **definition.options} if defaults else definition.options


def moment(value: Any) -> float | int:
    """
    Convert a time to epoch seconds.

    Args:
        value: Epoch seconds, or a timezone-aware datetime.

    Raises:
        PayloadError: It is something else, or cannot be a score: not finite, or too large for a float.
    """
    if (type(value) is float or type(value) is int) and payloads.is_finite(value):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise PayloadError(f"{value!r} has no time zone; give an aware datetime, like datetime.now(timezone.utc)")
        return value.timestamp()
    raise PayloadError(f"at is {payloads.shown(value)}; give epoch seconds or an aware datetime")


def span_seconds(value: Any) -> float:
    """
    Convert an interval to seconds.

    Args:
        value: Seconds, or a timedelta.

    Raises:
        PayloadError: It is something else.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and payloads.is_finite(value):
        return float(value)
    raise PayloadError(f"the interval is {payloads.shown(value)}; give seconds or a timedelta")


def through(chain: ClientChain, job: Any, payload: Payload) -> Payload | None:
    """The payload after the client middleware, or None if it was stopped."""
    if not chain:
        return payload
    went_through = False

    def innermost() -> Payload:
        nonlocal went_through
        went_through = True
        return payload

    kept = chain.invoke(job, payload, payload["queue"], innermost)
    if not kept:
        if kept is None and went_through:
            _warn_of_missing_return(payload)
        return None
    if hasattr(kept, "__await__"):
        if hasattr(kept, "close"):
            kept.close()
        raise ConfigError("a client middleware is an `async def`; it must be a plain function, also for AsyncClient")
    if isinstance(kept, dict):
        payload = kept
    queue = payload.get("queue")
    if type(queue) is not str or not queue:
        raise PayloadError(f"a client middleware left the queue {queue!r}; it must be a name")
    for name in ("class", "jid"):
        if payload.get(name) is None:
            raise PayloadError(f"a client middleware removed the job's {name}; it must keep it in the payload")
    return payload


def _warn_of_missing_return(payload: Payload) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        log.warning(
            "A client middleware called call_next() and then returned None, so %s was not enqueued. Return what "
            "call_next() returned, or False to stop a push on purpose. This is logged once",
            payload.get("class"),
        )


def as_outgoing(payload: Payload, dialect: Dialect, now: float) -> Outgoing:
    """
    The bytes of a payload, for its queue or for the schedule set.

    Args:
        now: Seconds since the epoch, for `enqueued_at`.

    Raises:
        ArgumentError: An argument is not JSON.
    """
    apply_strictness(payload)
    score, raw = payloads.encode(payload, dialect=dialect, now=now)
    return Outgoing(payload["jid"], payload["queue"], score, raw)


def emit_pushed(*batches: PushBatch) -> None:
    """Emit the event for each pushed batch, if there are handlers."""
    if PUSH.handlers:
        for queue, scores, jids, raws in batches:
            is_scheduled = scores is not None
            queue_name = None if is_scheduled else queue
            PUSH.emit({"queue": queue_name, "jids": jids, "payloads": raws, "is_scheduled": is_scheduled})


def apply_strictness(payload: Payload) -> None:
    """In the modes `warn` and `off`, replace arguments that are not JSON with the result of Ruby's `to_s`."""
    mode = program.settings().strict_args
    if mode == "raise":
        return
    try:
        check_args(payload.get("args") or [])
    except ArgumentTypeError as error:
        if mode == "warn":
            log.warning("job arguments to %s are not native JSON types: %s", payload["class"], error)
        payload["args"] = loosen(payload["args"])
