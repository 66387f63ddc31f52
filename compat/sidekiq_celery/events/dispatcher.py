"""`EventDispatcher`: sends events."""

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

from kombu.messaging import Producer

from sidekiq_celery._state import app_or_default
from sidekiq_celery.events.event import Event, get_exchange, group_from
from sidekiq_celery.utils.nodenames import anon_nodename
from sidekiq_celery.utils.time import utcoffset

__all__ = ("EventDispatcher",)


class EventDispatcher:
    """
    Sends events over a kombu connection: one by one, except for those of `buffer_group`. Close it after use.

    Args:
        connection: A connection to the broker.
        hostname: The sender's name; by default a name of this process.
        enabled: If false, `send` does nothing until `enable` is called.
        channel: A channel to use instead of *connection*.
        buffer_while_offline: Keep events that cannot be sent until `flush`; otherwise the error is raised.
        serializer: Overrides `event_serializer`.
        groups: Only send events of these groups; by default all.
        buffer_group: Groups whose events are buffered and sent together, as a list.
        buffer_limit: How many events are buffered.
        on_send_buffered: Called when an event is buffered.
    """

    DISABLED_TRANSPORTS: ClassVar[set[str]] = {"sql"}
    app: Any = None

    def __init__(
        self,
        connection: Any = None,
        hostname: str | None = None,
        enabled: bool = True,
        channel: Any = None,
        buffer_while_offline: bool = True,
        app: Any = None,
        serializer: str | None = None,
        groups: Iterable[str] | None = None,
        delivery_mode: int = 1,
        buffer_group: Iterable[str] | None = None,
        buffer_limit: int = 24,
        on_send_buffered: Callable[[], Any] | None = None,
    ) -> None:
        self.app = app_or_default(app or self.app)
        self.connection = channel.connection.client if channel and not connection else connection
        self.channel = channel
        self.hostname = hostname or anon_nodename()
        self.headers = {"hostname": self.hostname}
        self.pid = os.getpid()
        self.clock = self.app.clock
        self.serializer = serializer or self.app.conf.event_serializer
        self.delivery_mode = delivery_mode
        self.groups = set(groups or ())
        self.buffer_while_offline = buffer_while_offline
        self.buffer_group = buffer_group or frozenset()
        self.buffer_limit = buffer_limit
        self.on_send_buffered = on_send_buffered
        self.on_enabled: set[Callable[[], Any]] = set()
        self.on_disabled: set[Callable[[], Any]] = set()
        self.tzoffset = [-time.timezone, -time.altzone]
        self.mutex = threading.Lock()
        self.producer: Any = None
        self._closed = False
        self._outbound_buffer: deque[tuple[Any, str]] = deque()
        self._group_buffer: defaultdict[str, list[Any]] = defaultdict(list)
        broker = self.connection or self.app.connection_for_write()
        self.exchange = get_exchange(broker, name=self.app.conf.event_exchange)
        self.enabled = enabled and broker.transport.driver_type not in self.DISABLED_TRANSPORTS
        if self.enabled:
            self.enable()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def publisher(self) -> Any:
        """Another name for the producer."""
        return self.producer

    @publisher.setter
    def publisher(self, producer: Any) -> None:
        self.producer = producer

    # ---- on and off

    def make_producer(self) -> Any:
        """Create the kombu producer that publishes events."""
        return Producer(
            self.channel or self.connection, exchange=self.exchange, serializer=self.serializer, auto_declare=False
        )

    def enable(self) -> None:
        """Start sending."""
        with self.mutex:
            self.producer = self.make_producer()
            self._closed = False
            self.enabled = True
        for callback in self.on_enabled:
            callback()

    def disable(self) -> None:
        """Stop sending."""
        if not self.enabled:
            return
        self.enabled = False
        self.close()
        for callback in self.on_disabled:
            callback()

    def close(self) -> None:
        """Drop the producer once the current event is published. Buffered events stay buffered."""
        with self.mutex:
            self._closed = True
            self.producer = None

    # ---- sending

    def send(
        self,
        type: str,
        blind: bool = False,
        utcoffset: Callable[[], float] = utcoffset,
        retry: bool = False,
        retry_policy: Any = None,
        Event: Callable[..., Any] = Event,
        **fields: Any,
    ) -> Any:
        """
        Send an event.

        Args:
            type: `<group>-<what>`.
            blind: Leave out the logical time.
            retry, retry_policy: Retry while the broker cannot be reached, as in kombu.
            fields: The event's fields. JSON has to be able to carry them.
        """
        if not self.enabled:
            return None
        group = group_from(type)
        if self.groups and group not in self.groups:
            return None
        if group in self.buffer_group:
            self._keep(group, self._prepare_event(type, fields, Event=Event))
            return None
        event = self._prepare_event(type, fields, blind=blind, Event=Event)
        with self.mutex:
            if self._closed:
                return None
            return self._publish(event, self.producer, _routing_key(type), retry=retry, retry_policy=retry_policy)

    def publish(
        self,
        type: str,
        fields: dict[str, Any],
        producer: Any,
        blind: bool = False,
        Event: Callable[..., Any] = Event,
        **kwargs: Any,
    ) -> Any:
        """Send an event with the caller's producer. Works even when the dispatcher is closed."""
        event = self._prepare_event(type, fields, blind=blind, Event=Event)
        with self.mutex:
            return self._publish(event, producer, routing_key=_routing_key(type), **kwargs)

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """
        Send buffered events.

        Args:
            errors: Send events that could not be sent before.
            groups: Send the events of `buffer_group`.
        """
        with self.mutex:
            if self._closed:
                return
            if errors:
                self._flush_unsent()
            if groups:
                self._flush_groups()

    def extend_buffer(self, other: "EventDispatcher") -> None:
        """Take over the events that *other* could not send."""
        self._outbound_buffer.extend(other._outbound_buffer)

    def _prepare_event(
        self,
        type: str,
        fields: dict[str, Any],
        blind: bool = False,
        Event: Callable[..., Any] = Event,
    ) -> Any:
        clock = None if blind else self.clock.forward()
        return Event(type, hostname=self.hostname, utcoffset=utcoffset(), pid=self.pid, clock=clock, **fields)

    def _keep(self, group: str, event: Any) -> None:
        kept = self._group_buffer[group]
        kept.append(event)
        if len(kept) >= self.buffer_limit:
            self.flush()
        elif self.on_send_buffered is not None:
            self.on_send_buffered()

    def _publish(
        self, event: Any, producer: Any, routing_key: str, retry: bool = False, retry_policy: Any = None, **_: Any
    ) -> None:
        if producer is None:
            return
        try:
            producer.publish(
                event,
                routing_key=routing_key,
                exchange=self.exchange.name,
                retry=retry,
                retry_policy=retry_policy,
                declare=[self.exchange],
                serializer=self.serializer,
                headers=self.headers,
                delivery_mode=self.delivery_mode,
            )
        except Exception:
            if not self.buffer_while_offline:
                raise
            self._outbound_buffer.append((event, routing_key))

    def _flush_unsent(self) -> None:
        unsent = list(self._outbound_buffer)
        self._outbound_buffer.clear()
        for event, routing_key in unsent:
            self._publish(event, self.producer, routing_key)

    def _flush_groups(self) -> None:
        # Other threads may add groups and events meanwhile.
        for group, kept in list(self._group_buffer.items()):
            if kept:
                # If this raises, the events have to stay.
                together = list(kept)
                self._publish(together, self.producer, f"{group}.multi")
                del kept[: len(together)]


def _routing_key(type: str) -> str:
    return type.replace("-", ".")
