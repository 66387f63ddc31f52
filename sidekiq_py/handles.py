"""
What a declared job can be asked for: `perform_async` and its kin.

One class for functions, job classes and jobs that are implemented in Ruby; `Setter` is the same with other options.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec

from sidekiq_py import client, inline
from sidekiq_py.client import Client
from sidekiq_py.outgoing import moment, span_seconds
from sidekiq_py.parameters import Parameters
from sidekiq_py.registry import JobDefinition

P = ParamSpec("P")

Interval = float | timedelta
Moment = float | datetime
Jids = list[str | None]


class Handle(Generic[P]):
    """
    Enqueues one job.

    Args:
        definition: Which job.
        parameters: What a push must fit.
    """

    def __init__(self, definition: JobDefinition, parameters: Parameters) -> None:
        self.definition = self.__sidekiq_job__ = definition
        self._parameters = parameters

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} {self.definition.options}>"

    def set(self, options: Mapping[str, Any] | None = None, /, **more: Any) -> "Setter[P]":
        """
        The same job with other options: `job.set(queue="low", retry=False).perform_async(1)`.

        `wait` (seconds or a timedelta) and `wait_until` (a moment) schedule it, `pool` pushes to another Redis, and
        `sync=True` runs it here.
        """
        return Setter(self.definition, self._parameters, {**(options or {}), **more})

    def perform_async(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Enqueue the job.

        Returns:
            Its jid, or None if a client middleware stopped it.

        Raises:
            ArgumentTypeError: An argument is not JSON, or does not fit the job's parameters.
            ArgumentValueError: An argument is not JSON.
            RedisError: It was not enqueued; with `PushOutcomeUnknownError` nobody knows.
        """
        return self._push(self._parameters.fit(args, kwargs), None)

    def perform_in(self, interval: Interval, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Schedule the job.

        Args:
            interval: Seconds from now, or a timedelta. From 1,000,000,000 on it counts from the epoch, as in Ruby.
        """
        return self._push(self._parameters.fit(args, kwargs), span_seconds(interval))

    def perform_at(self, when: Moment, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """
        Schedule the job.

        Args:
            when: Seconds since the epoch, or an aware datetime. What has passed is enqueued at once.
        """
        return self._push(self._parameters.fit(args, kwargs), float(moment(when)))

    def perform_inline(self, *args: P.args, **kwargs: P.kwargs) -> bool | None:
        """
        Run the job here and now, as a worker would: its payload as bytes and back, client and server middleware.

        Returns:
            True, or None if a middleware stopped it. No retry, no statistics; errors pass.
        """
        return inline.perform(self.definition, self._parameters.fit(args, kwargs), self._set_options())

    def _push(self, args: list[Any], interval: float | None) -> str | None:
        return client.for_job(self.definition).push_call(self.definition, args, interval)

    def _client(self) -> Client:
        return client.for_job(self.definition)

    def _set_options(self) -> Mapping[str, Any] | None:
        return None


class Setter(Handle[P]):
    """A job with options for this push; made by `set`."""

    def __init__(self, definition: JobDefinition, parameters: Parameters, options: Mapping[str, Any]) -> None:
        super().__init__(definition, parameters)
        self._given = dict(options)
        self._options = dict(options)
        self._pool = self._options.pop("pool", None)
        self._is_sync = self._options.pop("sync", False) is True
        wait, until = self._options.pop("wait", None), self._options.pop("wait_until", None)
        self._interval: float | None = None
        if until is not None:
            self._interval = float(moment(until))
        elif wait is not None:
            self._interval = span_seconds(wait)

    def set(self, options: Mapping[str, Any] | None = None, /, **more: Any) -> "Setter[P]":
        """The same with more options."""
        return Setter(self.definition, self._parameters, {**self._given, **(options or {}), **more})

    def _push(self, args: list[Any], interval: float | None) -> str | None:
        if self._is_sync:
            inline.perform(self.definition, args, self._options)
            return None
        wait = self._interval if interval is None else interval
        return self._client().push_call(self.definition, args, wait, self._options)

    def _client(self) -> Client:
        return client.for_job(self.definition) if self._pool is None else client.of_pool(self._pool)

    def _set_options(self) -> Mapping[str, Any] | None:
        return self._options
