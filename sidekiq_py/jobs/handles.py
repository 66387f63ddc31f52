"""
The methods of a declared job: `perform_async` and its relatives.

`Handle` serves functions, job classes and jobs that are implemented in Ruby; `Setter` is a handle with other options.
The code behind methods that few programs call (`aperform_…`, `perform_inline`) is imported on first use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from time import time
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Unpack

from sidekiq_py.client import sync_client
from sidekiq_py.client.outgoing import moment, span_seconds
from sidekiq_py.client.sync_client import Client, Jids
from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.jobs.declaration import checked_block, checked_options
from sidekiq_py.jobs.parameters import Parameters
from sidekiq_py.jobs.signatures import signed
from sidekiq_py.options import (
    OF_SET,
    QUEUE_OPTIONS,
    SetOptions,
    checked_value,
    refuse_unseen,
    warn_of_unknown,
    with_custom,
)
from sidekiq_py.registry import Exhausted, JobDefinition, RetryIn
from sidekiq_py.wire.payload import LEAST_MOMENT, absolute_at

if TYPE_CHECKING:
    from sidekiq_py.client.async_client import AsyncClient
    from sidekiq_py.client.bulk import BulkOrder

P = ParamSpec("P")

# What enqueues a job in Celery, Dramatiq, RQ, Huey and Active Job.
_OF_OTHER_LIBRARIES = frozenset({"apply_async", "delay", "enqueue", "perform_later", "push", "schedule", "send"})

# The options of `set` that say when, where and how a single push happens.
_WHEN = ("at", "wait", "wait_until")
_OF_ONE_CALL = (*_WHEN, "pool", "sync")

Interval = float | timedelta
Moment = float | datetime


class Handle(Generic[P]):
    """
    Enqueues one job.

    Args:
        definition: The job.
        parameters: The job's parameters, which the arguments of a push must fit.
    """

    # A handle is made once per job, a `Setter` once per push.
    _lasts = True

    def __init__(self, definition: JobDefinition, parameters: Parameters) -> None:
        self.definition = self.__sidekiq_job__ = definition
        self._parameters = parameters
        # What a `Setter` sets: all that `set` was given, and what that means for a push.
        self._given: Mapping[str, Any] = {}
        self._options: Mapping[str, Any] | None = None
        self._pool: Any = None
        self._is_sync = False
        self._interval: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} {self.definition.options}>"

    if not TYPE_CHECKING:  # or every misspelled name would have the type Any

        def __getattr__(self, name: str) -> Any:
            hint = "; to enqueue the job, call perform_async" if name in _OF_OTHER_LIBRARIES else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(message, name=name, obj=self)

    def set(self, options: Mapping[str, Any] | None = None, /, **more: Unpack[SetOptions]) -> "Setter[P]":
        """
        The same job with other options: `job.set(queue="low", retry=False).perform_async(1)`.

        `wait` (seconds or a timedelta) and `wait_until` (a time) schedule it, `pool` pushes to another Redis,
        `sync=True` runs it here, and `custom={"tenant": 5}` adds your own keys to the payload.
        """
        return Setter(self.definition, self._parameters, self._merged(options, more))

    def _merged(self, options: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        """All options set so far. A later one overrides an earlier one of its name, a later time any earlier one."""
        if options is not None and not isinstance(options, Mapping):
            raise JobDeclarationError(
                f"{self.definition.name}.set got {options!r}; give options by name, as in set(queue='low'), or a dict"
            )
        if not (OF_SET.issuperset(more) and OF_SET.issuperset(options or ())):
            owner = f"{self.definition.name}.set"
            warn_of_unknown(more, OF_SET, owner)
            warn_of_unknown(options or (), OF_SET, owner, only_near=True)
        given, new = self._given, {**with_custom(options or {}), **with_custom(more)}
        for name in ("wait", "wait_until"):
            # As in Ruby, this sets no time. `at=None` is an error there, too.
            if name in new and new[name] is None:
                del new[name]
        if not new.keys().isdisjoint(_WHEN):
            given = {name: value for name, value in given.items() if name not in _WHEN}
        merged = {**given, **new}
        for name in QUEUE_OPTIONS:
            if name in merged:
                refuse_unseen(merged[name], f"{self.definition.name}.set has {name}={merged[name]!r}")
        if not isinstance(merged.get("retry"), int | None):
            # A worker would read it as the usual 25 retries. Numbers are left to the worker, as in Ruby.
            checked_value("retry", merged["retry"], f"{self.definition.name}.set")
        return merged

    @signed
    def perform_async(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Enqueue the job.

        Returns:
            Its jid, or None if a client middleware stopped it.

        Raises:
            ArgumentTypeError: An argument is not JSON, or does not fit the job's parameters.
            ArgumentValueError: An argument is not JSON.
            RedisError: It was not enqueued; after `PushOutcomeUnknownError`, it may have been.
        """
        return self._push(self._parameters.fit(args, kwargs), None)

    @signed
    def perform_in(self, interval: Interval, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Schedule the job.

        Args:
            interval: Seconds from now, or a timedelta. From 1,000,000,000 on, it counts from the epoch, as in Ruby.
        """
        return self._push(self._parameters.fit(args, kwargs), span_seconds(interval))

    @signed
    def perform_at(self, when: Moment, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Schedule the job.

        Args:
            when: Seconds since the epoch, or a timezone-aware datetime. If it is in the past, the job is enqueued
                immediately. Numbers below 1,000,000,000 are an interval, as in Ruby.
        """
        return self._push(self._parameters.fit(args, kwargs), _interval_to(when))

    def perform_bulk(
        self,
        args: Iterable[Sequence[Any]],
        *,
        batch_size: int | None = None,
        at: Moment | Sequence[Moment] | None = None,
        spread_interval: Interval | None = None,
    ) -> Jids:
        """
        Enqueue many jobs in few round trips: `job.perform_bulk([["bob", 5], ["al", 6]])`.

        Args:
            args: The arguments of each job. A generator is consumed as the jobs are pushed.
            batch_size: How many jobs to send per round trip; by default 1,000, and 100 for scheduled jobs since Sidekiq
                8.1.
            at: When to run the jobs: one time for all, or one for each.
            spread_interval: Schedules the jobs at random times within this many seconds from now.

        Returns:
            The jid of each job, or None for a job that a client middleware stopped, or that `set(sync=True)` ran here.
        """
        if self._is_sync:
            return [self._push(fitted, None) for fitted in self._one_by_one(args)]
        return self._client().push_slices(self._bulk_order(args, at, batch_size, spread_interval))

    @signed
    def perform_inline(self, *args: P.args, **kwargs: P.kwargs) -> bool | None:
        """
        Run the job here and now, as a worker would: with its payload converted to bytes and back, and with client and
        server middleware. There is no retry and nothing is counted; errors propagate.

        Returns:
            True, or None if a middleware stopped it.
        """
        from sidekiq_py.jobs import inline

        return inline.perform(self.definition, self._parameters.fit(args, kwargs), self._options)

    @signed
    async def aperform_async(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """`perform_async`, awaited."""
        return await self._apush(self._parameters.fit(args, kwargs), None)

    @signed
    async def aperform_in(self, interval: Interval, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """`perform_in`, awaited."""
        return await self._apush(self._parameters.fit(args, kwargs), span_seconds(interval))

    @signed
    async def aperform_at(self, when: Moment, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """`perform_at`, awaited."""
        return await self._apush(self._parameters.fit(args, kwargs), _interval_to(when))

    async def aperform_bulk(
        self,
        args: Iterable[Sequence[Any]],
        *,
        batch_size: int | None = None,
        at: Moment | Sequence[Moment] | None = None,
        spread_interval: Interval | None = None,
    ) -> Jids:
        """`perform_bulk`, awaited."""
        if self._is_sync:
            return [await self._apush(fitted, None) for fitted in self._one_by_one(args)]
        return await self._async_client().push_slices(self._bulk_order(args, at, batch_size, spread_interval))

    @signed
    async def aperform_inline(self, *args: P.args, **kwargs: P.kwargs) -> bool | None:
        """`perform_inline` in a running loop: an `async def` job runs on the loop, any other job in a thread."""
        from sidekiq_py.jobs import inline

        return await inline.aperform(self.definition, self._parameters.fit(args, kwargs), self._options)

    def _push(self, args: list[Any], interval: float | None) -> str | None:
        if interval is None:
            return sync_client.for_job(self.definition).push_now(self.definition, args)
        return sync_client.for_job(self.definition).push_call(self.definition, args, interval)

    async def _apush(self, args: list[Any], interval: float | None) -> str | None:
        if self._is_sync:
            from sidekiq_py.jobs import inline

            await inline.aperform(self.definition, args, self._options)
            return None
        return await self._async_client().push_call(self.definition, args, interval, self._push_options())

    def _one_by_one(self, args: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
        from sidekiq_py.client.bulk import must_be_lists

        must_be_lists(args)
        for one in args:
            yield from self._parameters.fit_many([one])

    def _client(self) -> Client:
        return sync_client.for_job(self.definition) if self._pool is None else sync_client.of_pool(self._pool)

    def _async_client(self) -> "AsyncClient":
        from sidekiq_py.client import async_client

        return async_client.for_job(self.definition) if self._pool is None else async_client.of_pool(self._pool)

    def _push_options(self) -> Mapping[str, Any] | None:
        """The options of a push that is made now. A `wait` becomes an `at`, which a later time in the call replaces."""
        at = None if self._interval is None else absolute_at(self._interval, time())
        return self._options if at is None else {**(self._options or {}), "at": at}

    def _bulk_order(self, args: Any, at: Any, batch_size: int | None, spread_interval: Any) -> "BulkOrder":
        from sidekiq_py.client import bulk

        return bulk.order_of_call_bulk(
            self.definition,
            args,
            fit=self._parameters.fit_many,
            set_options=self._push_options(),
            at=at,
            spread_interval=spread_interval,
            batch_size=batch_size,
        )


class DecidesRetries:
    """A job that this program declares, and so decides about its retries."""

    definition: JobDefinition

    def retry_in(self, block: RetryIn) -> RetryIn:
        """A decorator: `(count, exception, payload)` returns the seconds until the retry, "kill", "discard" or None."""
        self.definition.retry_in_block = checked_block(block, "retry_in", "(count, exception, payload)")
        return block

    def retries_exhausted(self, block: Exhausted) -> Exhausted:
        """A decorator: `(payload, exception)` is called when no retry is left."""
        self.definition.exhausted_block = checked_block(block, "retries_exhausted", "(payload, exception)")
        return block


class DeclaredJob(DecidesRetries, Handle[P]):
    """The handle of a job that this program declares."""


class Setter(Handle[P]):
    """A job with options for one push; made by `set`."""

    _lasts = False

    def __init__(self, definition: JobDefinition, parameters: Parameters, options: Mapping[str, Any]) -> None:
        super().__init__(definition, parameters)
        self._given = options
        self._options = own = dict(options)
        self._pool = own.pop("pool", None)
        self._is_sync = own.get("sync") is True
        if "at" in own and not isinstance(own["at"], (list, tuple)):
            own["at"] = moment(own["at"])
        wait, until = own.pop("wait", None), own.pop("wait_until", None)
        if until is not None:
            self._interval = _interval_to(until)
        elif wait is not None:
            self._interval = span_seconds(wait)

    def with_options(self) -> JobDefinition:
        """
        The job with these options, for whatever pushes it later: a periodic job, a callback of a batch, or an item's
        `class`.

        Raises:
            JobDeclarationError: An option is invalid, or belongs to a single push.
        """
        owner = f"{self.definition.name}.set"
        options = dict(self._given)
        for name in _OF_ONE_CALL:
            if options.pop(name, None) not in (None, False):
                raise JobDeclarationError(f"{owner} has {name}=, which only counts for a call, such as perform_async")
        definition = copy(self.definition)
        definition.options = {**definition.options, **checked_options(options, owner)}
        definition.push_template = None
        return definition

    def _push(self, args: list[Any], interval: float | None) -> str | None:
        if self._is_sync:
            from sidekiq_py.jobs import inline

            inline.perform(self.definition, args, self._options)
            return None
        return self._client().push_call(self.definition, args, interval, self._push_options())


def _interval_to(when: Moment) -> float:
    """A time as the argument of `perform_in`. A datetime of the last century must not be taken for an interval."""
    seconds = float(moment(when))
    return max(seconds, LEAST_MOMENT) if isinstance(when, datetime) else seconds
