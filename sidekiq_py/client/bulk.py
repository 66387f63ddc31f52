"""
The slices of a bulk push, which sends many jobs in few round trips.

Without client middleware, a slice costs one call to orjson and one template; otherwise each job is prepared like a
single push. Slices are made one at a time, so a generator of a million jobs only needs the memory of one slice, and the
next slice is made while Redis executes the last one. Source: Sidekiq 8.1.7, client.rb, `push_bulk`.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from time import time
from typing import Any, NamedTuple

from sidekiq_py import program
from sidekiq_py.client.jids import new_jids
from sidekiq_py.client.outgoing import (
    ClientChain,
    as_outgoing,
    moment,
    options_of,
    order_of_item,
    span_seconds,
    through,
)
from sidekiq_py.errors import PayloadError
from sidekiq_py.redis_access.job_path.push import Outgoing, PushBatch, UnrenderedBatch, push_batches_of
from sidekiq_py.registry import JobDefinition
from sidekiq_py.wire import payload as payloads
from sidekiq_py.wire.dialect import BULK_SLICE, Dialect
from sidekiq_py.wire.json_dialect import dump_args_many
from sidekiq_py.wire.payload import DEFAULT_OPTIONS
from sidekiq_py.wire.push_template import PushTemplate

Fit = Callable[[Sequence[Sequence[Any]]], list[list[Any]]]

# The keys whose values differ between the jobs of a bulk push.
_OF_ONE_PUSH = ("args", "jid", "created_at", "enqueued_at", "at")
_LEAST_SPREAD_SECONDS = 5.0
# With extensions, a slice may be pushed by a script. Lua can pass about 8,000 values to one command.
_MOST_IN_A_SCRIPT = 1000


class Slice(NamedTuple):
    """
    The jobs of one round trip.

    Args:
        jids: The jid of each job, or None for a job that a client middleware stopped.
        jobs: The batches to send; more than one only if middleware has changed the queue of some jobs.
    """

    jids: list[str | None]
    jobs: list[PushBatch] | UnrenderedBatch

    @property
    def push_batches(self) -> list[PushBatch]:
        """The batches to send, with their bytes."""
        return [self.jobs.render()] if isinstance(self.jobs, UnrenderedBatch) else self.jobs


class BulkOrder(NamedTuple):
    """
    The parameters of a bulk push.

    Args:
        fields: The item, with its class as a name and an empty list for `args`.
        definition: The declared job, or None if only a name was given.
        options: The defaults for keys that *fields* lacks.
        args: The arguments of each job.
        at: Epoch seconds for all jobs, or for each; None to push immediately.
        spread_seconds: Schedules the jobs at random times within this many seconds.
        batch_size: How many jobs are in a slice; None for the release's default.
        is_plain: True if all fields are options or already in order, so that a template writes them in the right order.
        fit: Checks the arguments against the job's parameters; None if lists are all it takes.
    """

    fields: dict[str, Any]
    definition: JobDefinition | None
    options: Mapping[str, Any]
    args: Iterable[Sequence[Any]]
    at: Any = None
    spread_seconds: float | None = None
    batch_size: int | None = None
    is_plain: bool = False
    fit: Fit | None = None


def order_of_item_bulk(item: Mapping[str, Any], *, batch_size: int | None, spread_interval: Any) -> BulkOrder:
    """
    The order for a call of `push_bulk`.

    Args:
        item: May also have `batch_size` and `spread_interval`.

    Raises:
        PayloadError: The item is not a mapping, or has keys that exclude each other.
    """
    at = None
    if isinstance(item, Mapping):
        at, item = item.get("at"), {key: value for key, value in item.items() if key != "at"}
    fields, definition, options = order_of_item(item)
    if "args" not in fields:
        raise PayloadError("the bulk push has no 'args': push {'class': 'Name', 'args': [[1], [2]]} for two jobs")
    args, fields["args"] = fields["args"], []
    size, spread = fields.pop("batch_size", None), fields.pop("spread_interval", None)
    names = list(fields)
    is_plain = {*names} <= {"class", "args", "queue", "retry"} and names.index("class") < names.index("args")
    spread = _spread(spread if spread_interval is None else spread_interval)
    return checked(BulkOrder(fields, definition, options, args, at, spread, batch_size or size, is_plain))


def order_of_call_bulk(
    definition: JobDefinition,
    args: Iterable[Sequence[Any]],
    *,
    fit: Fit,
    set_options: Mapping[str, Any] | None,
    at: Any,
    spread_interval: Any,
    batch_size: int | None,
) -> BulkOrder:
    """The order for a call of `perform_bulk`."""
    fields = {**(set_options or {})}
    at = fields.pop("at", None) if at is None else at
    is_plain = not any(key in fields for key in _OF_ONE_PUSH)
    fields |= {"class": definition.name, "args": []}
    spread, options = _spread(spread_interval), options_of(definition)
    return checked(BulkOrder(fields, definition, options, args, at, spread, batch_size, is_plain, fit))


def checked(order: BulkOrder) -> BulkOrder:
    """
    Validate an order, and convert its times to numbers.

    Raises:
        PayloadError: The order is invalid.
    """
    args, at, size = order.args, order.at, order.batch_size
    must_be_lists(args)
    if size is not None and (type(size) is not int or size < 1):
        raise PayloadError(f"batch_size is {size!r}; give how many jobs a round trip carries, 1 or more")
    if at is not None and order.spread_seconds is not None:
        raise PayloadError("at and spread_interval both say when; give one of them")
    if isinstance(at, Iterable) and not isinstance(at, (str, bytes)):
        args, at = list(args), [moment(value) for value in at]
        if len(at) != len(args):
            raise PayloadError(f"at has {len(at)} moments for {len(args)} jobs; give one for each, or one for all")
    elif at is not None:
        at = moment(at)
    if order.fields.get("jid") is not None:
        args = list(args)
        if len(args) > 1:
            raise PayloadError("jid is given for more than one job; leave it out, or push them one by one")
    return order._replace(args=args, at=at)


def must_be_lists(args: object) -> None:
    """
    Check what a bulk push was given as the arguments of its jobs.

    Raises:
        PayloadError: It cannot be a list of lists.
    """
    if isinstance(args, (str, bytes, Mapping)) or not isinstance(args, Iterable):
        raise PayloadError(f"bulk args are {args!r}; give a list of lists: [[1], [2]] for two jobs")


def slices(order: BulkOrder, *, dialect: Dialect, chain: ClientChain) -> Iterator[Slice]:
    """
    The slices of a bulk push, each made on demand.

    Args:
        dialect: The release to follow.
        chain: The client middleware.

    Raises:
        PayloadError: The order is not usable.
        ArgumentTypeError: An argument is not JSON, or does not fit.
        ArgumentValueError: An argument is not JSON.
    """
    is_scheduled = order.at is not None or order.spread_seconds is not None
    size = order.batch_size or (dialect.scheduled_bulk_slice if is_scheduled else BULK_SLICE)
    if program.extensions.wants_pushes(order.options):
        size = min(size, _MOST_IN_A_SCRIPT)
    moments = iter(order.at) if isinstance(order.at, list) else None
    is_plain = order.is_plain and program.is_plain and not chain and dialect.defaults_first
    make = _plain_maker(order, dialect) if is_plain else _careful_maker(order, dialect, chain)
    remaining = iter(order.args)
    while chunk := list(islice(remaining, size)):
        fitted = (order.fit or _lists)(chunk)
        yield make(fitted, _moments(order, moments, len(chunk)) if is_scheduled else None)


Make = Callable[[list[list[Any]], "list[float | int] | None"], Slice]


def _plain_maker(order: BulkOrder, dialect: Dialect) -> Make:
    options = {k: v for k, v in order.fields.items() if k not in ("class", "args")}
    whole = {**order.options, **options}
    queue = {**DEFAULT_OPTIONS, **whole}["queue"]
    template = PushTemplate(order.fields["class"], whole, dialect)
    created = dialect.stamp(time())

    def make(args: list[list[Any]], moments: list[float | int] | None) -> Slice:
        jids = new_jids(len(args))
        texts = dump_args_many(args, dialect.float_text)
        if moments is None:
            jobs = template.bulk(texts, jids, created, dialect.stamp(time()))
            return Slice([*jids], UnrenderedBatch(queue, jids, jobs))
        raws = template.render_bulk_scheduled(texts, jids, created)
        return Slice([*jids], [PushBatch(queue, [payloads.score_text(at) for at in moments], jids, raws)])

    return make


def _careful_maker(order: BulkOrder, dialect: Dialect, chain: ClientChain) -> Make:
    fields, definition = dict(order.fields), order.definition
    explicit_jid = fields.get("jid")
    if dialect.bulk_moves_jid:
        # Ruby ignores it, and appends another.
        fields["jid"] = fields.pop("jid", None)
    whole = payloads.normalize(fields, dialect=dialect, now=time(), jid="-", class_options=order.options)
    shown = whole["class"] if definition is None else definition.job

    def make(args: list[list[Any]], moments: list[float | int] | None) -> Slice:
        now = time()
        jids: list[str | None] = []
        ready: list[Outgoing] = []
        for index, (one, jid) in enumerate(zip(args, new_jids(len(args)), strict=True)):
            at = None if moments is None else moments[index]
            payload = payloads.bulk_payload(whole, one, jid=explicit_jid or jid, dialect=dialect, now=now, at=at)
            kept = through(chain, shown, payload)
            jids.append(None if kept is None else kept["jid"])
            if kept is not None:
                ready.append(as_outgoing(kept, dialect, now))
        return Slice(jids, push_batches_of(ready))

    return make


def _moments(order: BulkOrder, each: Iterator[float] | None, count: int) -> list[float | int]:
    if each is not None:
        return list(islice(each, count))
    if order.spread_seconds is not None:
        now = time()
        return [now + random.random() * order.spread_seconds for _ in range(count)]
    return [order.at] * count


def _spread(value: Any) -> float | None:
    """Source: Sidekiq 8.1.7, client.rb: positive, and raised to five seconds."""
    if value is None:
        return None
    seconds = span_seconds(value)
    if not seconds > 0:
        raise PayloadError(f"spread_interval is {value!r}; give seconds above 0, or a timedelta")
    return max(seconds, _LEAST_SPREAD_SECONDS)


def _lists(many: Sequence[Sequence[Any]]) -> list[list[Any]]:
    for args in many:
        if not isinstance(args, (list, tuple)):
            raise PayloadError(f"bulk args contain {args!r}; give a list for each job: [[1], [2]] for two jobs")
    return [args if type(args) is list else list(args) for args in many]
