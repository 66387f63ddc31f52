"""
From a call to bytes: what is shared by the clients that block and those that are awaited.

An item is completed (`wire.payload`), goes through the client middleware, has its arguments checked, and becomes an
`Outgoing`. Nothing here talks to Redis.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from sidekiq_py import program
from sidekiq_py.client.jids import new_jid
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, ConfigError, PayloadError
from sidekiq_py.middleware.chain import Chain, ClientMiddleware
from sidekiq_py.redis_access.job_path.push import Outgoing, PushBatch
from sidekiq_py.registry import JobDefinition, Payload
from sidekiq_py.telemetry import PUSH
from sidekiq_py.wire import payload as payloads
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import check_args, dump_args, loads
from sidekiq_py.wire.json_loose import loosen
from sidekiq_py.wire.payload import call_item

ClientChain = Chain[ClientMiddleware]

# From here on `perform_in` counts from the epoch. Source: Sidekiq, `perform_in` in every release.
LEAST_MOMENT = 1_000_000_000.0

_log = logging.getLogger("sidekiq")


class Order(NamedTuple):
    """
    What was asked for.

    Args:
        fields: The item, its class by name.
        definition: The declared job, or None where only a name was given.
    """

    fields: dict[str, Any]
    definition: JobDefinition | None


def order_of_item(item: Mapping[str, Any]) -> Order:
    """
    What the caller of `push` asks for.

    Raises:
        PayloadError: It is no mapping with string keys.
    """
    if not isinstance(item, Mapping):
        raise PayloadError(f"a job is a dict with 'class' and 'args', and this is {item!r}")
    fields = dict(item)
    for key in fields:
        if type(key) is not str:
            raise PayloadError(f"a job's keys are strings, and {key!r} is of type {type(key).__name__}")
        if key.startswith(":"):
            raise PayloadError(f"the key {key!r} is spelled as a Ruby symbol; write {key[1:]!r}")
    definition = getattr(fields.get("class"), "__sidekiq_job__", None)
    if not isinstance(definition, JobDefinition):
        definition = None
    else:
        fields["class"] = definition.name
    if "at" in fields:
        fields["at"] = moment(fields["at"])
    return Order(fields, definition)


def order_of_call(
    definition: JobDefinition,
    args: list[Any],
    *,
    dialect: Dialect,
    set_options: Mapping[str, Any] | None,
    at: float | None,
    is_scheduled: bool,
) -> Order:
    """
    What `perform_async`, `perform_in` and `set(...)` ask for.

    Args:
        set_options: The options of `set(...)`, or None if it was not called.
        at: Epoch seconds; None also for a scheduled push whose time has come.
        is_scheduled: It is `perform_in` or `perform_at`, which put the keys in another order.
    """
    fields = call_item(
        definition.name, args, dialect=dialect, set_options=set_options, at=at, is_scheduled=is_scheduled
    )
    return Order(fields, definition)


def prepare(order: Order, *, dialect: Dialect, chain: ClientChain) -> Outgoing | None:
    """
    What is to be sent, or None if a middleware stopped it.

    Args:
        dialect: The release to follow.
        chain: The client middleware.

    Raises:
        PayloadError: The item is not a usable job.
        ArgumentTypeError: An argument is not JSON.
        ArgumentValueError: An argument is not JSON.
    """
    payload = completed(order, dialect=dialect, chain=chain)
    return None if payload is None else as_outgoing(payload, dialect, now_seconds())


def completed(order: Order, *, dialect: Dialect, chain: ClientChain) -> Payload | None:
    """The payload that `prepare` dumps."""
    fields, definition = order
    payload = payloads.normalize(
        fields, dialect=dialect, now=now_seconds(), jid=new_jid(), class_options=options_of(definition)
    )
    return through(chain, payload["class"] if definition is None else definition.job, payload)


def deferred(order: Order, dialect: Dialect, push_later: Callable[[Order], None]) -> str | None:
    """
    Put a push off until the open transaction is committed; its jid, or None if it is to be made now.

    Args:
        push_later: Makes it.
    """
    if program.after_commit is None:
        return None
    order = snapshot(order, dialect)
    around: list[AbstractContextManager[Any]] = []
    if not program.after_commit(partial(_push_within, around, push_later, order)):
        return None
    # Asked for only now, as most pushes find no transaction open.
    if program.extensions.wants_pushes():
        around += program.extensions.deferred()
    return str(order.fields["jid"])


def _push_within(
    around: "list[AbstractContextManager[Any]]", push_later: Callable[[Order], None], order: Order
) -> None:
    with ExitStack() as entered:
        for one in around:
            entered.enter_context(one)
        push_later(order)


def snapshot(order: Order, dialect: Dialect) -> Order:
    """
    The same with a jid, and arguments that nobody can change any more, for a push that comes later.

    Raises:
        ArgumentTypeError: An argument is not JSON.
        ArgumentValueError: An argument is not JSON.
    """
    fields = dict(order.fields)
    if fields.get("jid") is None:
        fields["jid"] = new_jid()
    if isinstance(fields.get("args"), list):
        apply_strictness(fields)
        fields["args"] = loads(dump_args(fields["args"], dialect.float_text))
    return Order(fields, order.definition)


def repushed(payload: Mapping[str, Any], *, job: Any, dialect: Dialect, chain: ClientChain) -> Outgoing | None:
    """
    What a stored payload becomes when it is pushed again, or None if a middleware stopped it.

    As in Ruby it waits where an `at` says so, which a middleware may have set; a moment that is past makes it go out.
    """
    now = now_seconds()
    again = payloads.prepare_repush(payload, dialect=dialect, now=now, jid=new_jid())
    kept = through(chain, again["class"] if job is None else job, again)
    if kept is None:
        return None
    at = kept.get("at")
    if isinstance(at, (int, float)) and payloads.is_finite(at) and now < at:
        score, raw = payloads.for_schedule(kept, dialect=dialect)
        return Outgoing(kept["jid"], kept["queue"], score, raw)
    raw = payloads.for_queue(kept, dialect=dialect, now=now)
    return Outgoing(kept["jid"], kept["queue"], None, raw)


def options_of(definition: JobDefinition | None) -> Mapping[str, Any]:
    """What stands in for keys that an item lacks."""
    defaults = program.default_job_options
    if definition is None:
        return defaults
    return {**defaults, **definition.options} if defaults else definition.options


def moment(value: Any) -> float | int:
    """
    Epoch seconds.

    Args:
        value: Epoch seconds, or an aware datetime.

    Raises:
        PayloadError: It is something else, or no sorted set could keep it: not finite, or too large for a float.
    """
    if (type(value) is float or type(value) is int) and payloads.is_finite(value):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise PayloadError(f"{value!r} has no time zone; give an aware datetime, as datetime.now(timezone.utc)")
        return value.timestamp()
    raise PayloadError(f"at is {payloads.shown(value)}; give epoch seconds or an aware datetime")


def span_seconds(value: Any) -> float:
    """
    Seconds of an interval.

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
    kept = chain.invoke(job, payload, payload["queue"], lambda: payload)
    if not kept:
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
    return payload


def as_outgoing(payload: Payload, dialect: Dialect, now: float) -> Outgoing:
    """
    The bytes of a payload, for its queue or for the schedule set.

    Args:
        now: Seconds since the epoch, for `enqueued_at`.

    Raises:
        ArgumentTypeError: An argument is not JSON.
        ArgumentValueError: An argument is not JSON.
    """
    apply_strictness(payload)
    try:
        if payload.get("at") is not None:
            score, raw = payloads.for_schedule(payload, dialect=dialect)
            return Outgoing(payload["jid"], payload["queue"], score, raw)
        raw = payloads.for_queue(payload, dialect=dialect, now=now)
        return Outgoing(payload["jid"], payload["queue"], None, raw)
    except (ArgumentTypeError, ArgumentValueError):
        check_args(payload["args"])  # names the argument's place rather than the payload's
        raise


def tell_pushed(queue: str, jids: list[str], raws: list[bytes], *, is_scheduled: bool) -> None:
    """Jobs stand in Redis. Called only where somebody listens: `if PUSH.handlers: …`."""
    PUSH.emit({"queue": None if is_scheduled else queue, "jids": jids, "payloads": raws, "is_scheduled": is_scheduled})


def tell_pushed_batch(batch: PushBatch) -> None:
    """The same of a batch, whoever listens."""
    if PUSH.handlers:
        tell_pushed(batch.queue, batch.jids, batch.payloads, is_scheduled=batch.scores is not None)


def apply_strictness(payload: Payload) -> None:
    """In the modes `warn` and `off`, put in place of what is not JSON what Ruby's `to_s` would leave."""
    mode = program.settings().strict_args
    if mode == "raise":
        return
    try:
        check_args(payload["args"])
    except ArgumentTypeError as error:
        if mode == "warn":
            _log.warning("job arguments to %s are not native JSON types: %s", payload["class"], error)
        payload["args"] = loosen(payload["args"])
