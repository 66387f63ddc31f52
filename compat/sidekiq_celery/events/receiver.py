"""`EventReceiver`: receives events as they arrive."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any
from uuid import UUID

from kombu.connection import maybe_channel
from kombu.entity import Queue
from kombu.mixins import ConsumerMixin

from sidekiq_celery._state import app_or_default
from sidekiq_celery.events.event import get_exchange
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.ids import uuid
from sidekiq_celery.utils.log import get_logger
from sidekiq_celery.utils.time import adjust_timestamp
from sidekiq_py.payloads import escaped

__all__ = ("CLIENT_CLOCK_SKEW", "EventReceiver")

CLIENT_CLOCK_SKEW = -1
"""A client's clock does not follow the others, so the events that it sends are put before all that are known."""

_TIME_OF = itemgetter("utcoffset", "timestamp")
# Above all times in seconds: the year 5138, which a date can hold, too. NaN is not below it either.
_MOST_SECONDS = 1e11
# Above all clocks, which are milliseconds since 1970 in a worker (`WallClock`). JSON has all integers up to it.
_MOST_CLOCK = 2**53
_MOST_SHOWN = 200

logger = get_logger(__name__)


class EventReceiver(ConsumerMixin):
    """
    Receives events from the broker and passes each to its handler.

    Args:
        channel: A channel, or a connection, whose default channel is used.
        handlers: Maps types of events to functions. The handler for `*` gets events that have no other.
        routing_key: The events to receive; on Redis all of them, or those of one type, as in `task.received`.
        node_id: A part of the queue's name.
        queue_prefix, queue_ttl, queue_expires, queue_exclusive, queue_durable: Override the settings `event_queue_…`.
            Redis keeps no events for absent receivers, so the times have no effect there.
        accept: Content types.

    Raises:
        ImproperlyConfigured: The queue would be both exclusive and durable.
    """

    app: Any = None

    def __init__(
        self,
        channel: Any,
        handlers: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None,
        routing_key: str = "#",
        node_id: str | None = None,
        app: Any = None,
        queue_prefix: str | None = None,
        accept: Iterable[str] | None = None,
        queue_ttl: float | None = None,
        queue_expires: float | None = None,
        queue_exclusive: bool | None = None,
        queue_durable: bool | None = None,
    ) -> None:
        self.app = app_or_default(app or self.app)
        conf, either = self.app.conf, self.app.either
        self.channel = maybe_channel(channel)
        self.handlers = {} if handlers is None else handlers
        self.routing_key = routing_key
        self.node_id = node_id or uuid()
        self.queue_prefix = queue_prefix or conf.event_queue_prefix
        self.exchange = get_exchange(self.connection or self.app.connection_for_write(), name=conf.event_exchange)
        exclusive = either("event_queue_exclusive", queue_exclusive)
        durable = either("event_queue_durable", queue_durable)
        if exclusive and durable:
            raise ImproperlyConfigured(
                "the event queue cannot be both exclusive and durable: set event_queue_exclusive=False to keep it, or "
                "leave event_queue_durable off"
            )
        self.queue = Queue(
            f"{self.queue_prefix}.{self.node_id}",
            exchange=self.exchange,
            routing_key=routing_key,
            auto_delete=not durable,
            durable=durable,
            exclusive=exclusive,
            message_ttl=either("event_queue_ttl", queue_ttl),
            expires=either("event_queue_expires", queue_expires),
        )
        self.clock = self.app.clock
        self.adjust_clock = self.clock.adjust
        self.forward_clock = self.clock.forward
        self.accept = {conf.event_serializer, "json"} if accept is None else accept

    @property
    def connection(self) -> Any:
        """The channel's connection."""
        return self.channel.connection.client if self.channel else None

    # ---- receiving events

    def capture(self, limit: int | None = None, timeout: float | None = None, wakeup: bool = True) -> None:
        """
        Receive events until `should_stop` is set.

        Args:
            limit: The number of messages to receive. A worker sends several events in one message.
            timeout: The longest time in seconds to wait for an event.
            wakeup: Ask all workers for a heartbeat first.

        Raises:
            TimeoutError: No event arrived within *timeout*.
        """
        for _ in self.itercapture(limit=limit, timeout=timeout, wakeup=wakeup):
            pass

    def itercapture(self, limit: int | None = None, timeout: float | None = None, wakeup: bool = True) -> Iterator[Any]:
        """Receive events as `capture` does, yielding after each message."""
        consume: Callable[..., Iterator[Any]] = self.consume
        return consume(limit=limit, timeout=timeout, wakeup=wakeup)

    def process(self, type: str, event: dict[str, Any]) -> None:
        """Pass an event to its handler."""
        handler = self.handlers.get(type) or self.handlers.get("*")
        if handler is not None:
            handler(event)

    def wakeup_workers(self, channel: Any = None) -> None:
        """Ask all workers for a heartbeat."""
        self.app.control.broadcast("heartbeat", connection=self.connection, channel=channel)

    # ---- for kombu

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
        """Return the only consumer."""
        return [Consumer(queues=[self.queue], callbacks=[self._receive], no_ack=True, accept=self.accept)]

    def on_consume_ready(
        self, connection: Any, channel: Any, consumers: Any, wakeup: bool = True, **kwargs: Any
    ) -> None:
        """Called when events can arrive."""
        if wakeup:
            self.wakeup_workers(channel=channel)

    # ---- reading

    def event_from_message(
        self,
        body: dict[str, Any],
        localize: bool = True,
        now: Callable[[], float] = time.time,
        tzfields: Callable[[Any], tuple[float, float]] = _TIME_OF,
        adjust_timestamp: Callable[[float, float], float] = adjust_timestamp,
        CLIENT_CLOCK_SKEW: int = CLIENT_CLOCK_SKEW,
    ) -> tuple[str, dict[str, Any]]:
        """
        Return an event's type, and the event with `local_received` added and its timestamp converted to our time.

        Args:
            localize: If false, the timestamp stays as it came.
        """
        self._follow_clock(body, CLIENT_CLOCK_SKEW)
        if localize and "utcoffset" in body and "timestamp" in body:
            offset, timestamp = tzfields(body)
            body["timestamp"] = adjust_timestamp(timestamp, offset)
        body["local_received"] = now()
        return body["type"], body

    def _follow_clock(self, body: dict[str, Any], skew: int) -> None:
        if body["type"] == "task-sent":
            body["clock"] = (self.clock.value or 1) + skew
        elif not _is_below(body.get("clock"), _MOST_CLOCK):
            # It was left out, as with `blind=True`, or nobody's clock should go by it.
            body["clock"] = self.forward_clock()
            return
        self.adjust_clock(body["clock"])

    def _receive(self, body: Any, message: Any) -> None:
        for event in body if isinstance(body, list) else [body]:
            if _is_readable(event):
                self.process(*self.event_from_message(event))
            else:
                logger.warning("An event that is not well-formed is ignored: %s", escaped(repr(event)[:_MOST_SHOWN]))


def _is_readable(event: Any) -> bool:
    """Whether *event* has what every reader of events relies on. Whoever reaches the broker can send others."""
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return False
    group = event["type"].partition("-")[0]
    ids = ("uuid", "parent_id", "root_id") if group == "task" else ()
    texts = ("hostname", "name") if group == "task" else ("hostname",)
    times = ("timestamp", "utcoffset", "freq") if group == "worker" else ("timestamp", "utcoffset")
    # Events of a program's own may have other times, such as milliseconds.
    most = _MOST_SECONDS if group in ("task", "worker") else sys.float_info.max
    return (
        # Callers of Celery's tasks may choose ids, and kombu's JSON returns a UUID as one.
        all(isinstance(event.get(name), str | int | UUID | None) for name in ids)
        and all(isinstance(event.get(name), str | None) for name in texts)
        and all(_is_below(event.get(name, 0), most) for name in times)
    )


def _is_below(number: Any, most: float) -> bool:
    return isinstance(number, int | float) and abs(number) < most
