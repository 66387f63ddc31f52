"""
A channel: a `Reader` serves Sidekiq's queues, and kombu's own transport for Redis does everything else.

Queues that are made for one reply or one consumer (`*.pidbox`, names that are UUIDs, `amq.gen-…`) are kombu's own
lists, under kombu's names. They would be noise among Sidekiq's queues, and workers that answer remote control look for
them there.
"""

import os
import re
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from typing import Any

import redis
from kombu.exceptions import EncodeError
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from sidekiq_celery._send.emptying import empty
from sidekiq_celery._wire.priorities import base_queue, levels, step_queue, steps_of
from sidekiq_celery.exceptions import ImproperlyConfigured, InvalidTaskError
from sidekiq_celery.transport.address import redis_pool, settings_of
from sidekiq_celery.transport.errors import as_kombus
from sidekiq_celery.transport.incoming import message_of
from sidekiq_celery.transport.outgoing import REDELIVERED, Item, item_of, opaque_item_of, redelivered
from sidekiq_celery.transport.reader import Reader
from sidekiq_py.consumer import ConsumerSession, UnitOfWork, enter
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, PayloadError, RedisError
from sidekiq_py.extension import RedisSettings
from sidekiq_py.payloads import keys, parse_job

_PASSING = re.compile(
    r".*\.pidbox|amq\.gen-.*|celeryev\..*|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
_LEASE_SECONDS = 30.0
_LONG_AGO = "1970-01-01T00:00:00+00:00"


class QoS(virtual.QoS):
    """Deliveries that are not settled yet: tracked here by tag, and in Redis by owner."""

    def ack(self, delivery_tag: str) -> None:
        """Settle a delivery as done."""
        self.channel.settle(delivery_tag)
        super().ack(delivery_tag)
        self.channel.wake()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Requeue a delivery at the end of its queue. Without *requeue*, a task goes to `dead`."""
        message = self._delivered.get(delivery_tag)
        unit = self.channel.unit(delivery_tag)
        if unit is None:
            # From one of kombu's own queues.
            super().reject(delivery_tag, requeue=requeue)
            return
        if requeue:
            self.channel.put_last(delivery_tag)
        else:
            self.channel.refuse(delivery_tag, message)
        super().ack(delivery_tag)
        self.channel.wake()

    def restore_unacked(self) -> list[Any]:
        """Requeue all unsettled deliveries, except those that a forked child inherited: they are its parent's."""
        if self.channel.is_inherited:
            self._delivered.clear()
            return []
        self._flush()
        ours = [tag for tag in self._delivered if self.channel.unit(tag) is not None]
        for tag in ours:
            del self._delivered[tag]
        self.channel.give_back(ours)
        # The rest is from kombu's own queues.
        errors: list[Any] = super().restore_unacked()
        self.channel.wake()
        return errors


class Channel(kombu_redis.Channel):
    """A channel of the transport."""

    QoS: Any = QoS
    supports_batch_publish = False
    sidekiq_version: str | None = None
    lease_seconds = _LEASE_SECONDS
    # kombu supports it since 5.6.
    client_name: Any = None

    from_transport_options: Any = (
        *kombu_redis.Channel.from_transport_options,
        *("sidekiq_version", "lease_seconds", "client_name"),
    )

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        self._pid = os.getpid()
        self.settings: RedisSettings = settings_of(connection.client)
        self._visited: tuple[ConsumerSession, Callable[[], None]] | None = None
        self._reader: Reader | None = None
        self._units: dict[str, UnitOfWork] = {}
        self._unacknowledged: set[str] = set()
        self._steps = steps_of(connection.client.transport_options or {})
        super().__init__(connection, **kwargs)
        self.QoS = QoS

    # ---- where Redis is

    def _get_pool(self, asynchronous: bool = False) -> redis.ConnectionPool:
        options = {
            "socket_timeout": self.settings.socket_timeout_seconds,
            "socket_connect_timeout": self.settings.connect_timeout_seconds,
            "health_check_interval": self.health_check_interval,
            "client_name": self.client_name,
        }
        pool = redis_pool(self.settings, **options)
        self.keyprefix_fanout = self.keyprefix_fanout.format(db=pool.connection_kwargs.get("db") or 0)
        if asynchronous:
            pool.connection_class = _watched(pool.connection_class, self)
        return pool

    @property
    def session(self) -> ConsumerSession:
        """This process's consumer session for that Redis."""
        if self._visited is None or self._visited[0].is_inherited:
            self._visited = enter(self.settings, self.sidekiq_version, float(self.lease_seconds))
        return self._visited[0]

    # ---- sending

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        if _is_passing(queue):
            super()._put(queue, message, **kwargs)
            return
        item_queue = step_queue(queue, self._get_message_priority(message), self._steps)
        body = self.decode_body(message.get("body"), message["properties"].get("body_encoding"))
        now = time.time()
        with as_kombus(may_repeat=False):
            try:
                self._push(item_of(message, body, now), item_queue)
            except (ArgumentTypeError, ArgumentValueError, PayloadError) as error:
                if "task" not in (message.get("headers") or {}):
                    raise EncodeError(str(error)) from error
                self._push(opaque_item_of(message, body, now), item_queue)

    def _push(self, item: Item, queue: str) -> None:
        self.session.client.push({**item, "queue": queue})

    # ---- consuming

    def basic_consume(self, queue: str, no_ack: bool = False, *args: Any, **kwargs: Any) -> Any:
        """
        Consume from *queue*.

        Raises:
            ImproperlyConfigured: This program runs under eventlet.
        """
        if not _is_passing(queue) and not hasattr(select, "poll"):
            raise ImproperlyConfigured(
                "sidekiq:// cannot consume under eventlet, only publish; use the pool prefork, threads or gevent"
            )
        if no_ack:
            self._unacknowledged.add(queue)
        else:
            self._unacknowledged.discard(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the number of unsettled deliveries. 0 sets no limit; each is then fetched when it is asked for."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.wake()

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return the next message of *queue*, or None."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.settle(message.delivery_tag)
        return message

    @property
    def active_queues(self) -> list[str]:
        """The queues that kombu's own transport consumes, except for fanout."""
        return [queue for queue in super().active_queues if _is_passing(queue)]

    @property
    def sidekiq_queues(self) -> list[tuple[str, int]]:
        """The Sidekiq queues that are consumed, in order of precedence, with weights."""
        names = [queue for queue in super().active_queues if not _is_passing(queue)]
        if self.queue_order_strategy == "sorted":
            names.sort()
        weight = 0 if self.queue_order_strategy in ("priority", "sorted") else 1
        by_level = zip(*(levels(name, self._steps) for name in names), strict=True)
        return [(name, weight) for level in by_level for name in level]

    def ready_fd(self) -> int | None:
        """Called when the consumer waits: a descriptor that is readable once a job is ready. None without queues."""
        queues = self.sidekiq_queues
        if not queues and self._reader is None:
            return None
        if self._reader is None:
            self._reader = Reader(self.session, self._room)
        self._reader.serve(queues)
        if queues:
            self._reader.ask()
        return self._reader.ready_fd

    def deliver_next(self) -> bool:
        """Deliver the next ready job. Returns False if there was none, or it could not be delivered."""
        assert self._reader is not None
        unit = self._reader.take()
        if unit is None or not self.session.may_deliver(unit):
            return False
        queue = base_queue(unit.queue, self._steps)
        if queue not in self._active_queues or not self.qos.can_consume():
            self.session.give_back([unit])
            return False
        message = self._message(unit, queue)
        if message is None:
            return False
        if queue in self._unacknowledged:
            self.settle(message["properties"]["delivery_tag"])
        self.connection._deliver(message, queue)
        return True

    def wake(self) -> None:
        """Tell the reader that there may be room for another delivery."""
        if self._reader is not None:
            self._reader.wake()

    def _room(self) -> int:
        if not self.qos.prefetch_count:
            return 1
        return int(self.qos.can_consume_max_estimate())

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if _is_passing(queue):
            passing: dict[str, Any] = super()._get(queue)
            return passing
        while True:
            with as_kombus():
                units, _ = self.session.fetch([(name, 0) for name in levels(queue, self._steps)], 1)
            if not units:
                raise Empty()
            message = self._message(units[0], queue)
            if message is not None:
                return message

    def _message(self, unit: UnitOfWork, queue: str) -> dict[str, Any] | None:
        """Convert a job to a message. Returns None if that is impossible; the job is then in `dead` or its queue."""
        assert unit.owner is not None
        tag = f"{unit.owner.name}/{unit.field.decode()}"
        try:
            message = message_of(parse_job(unit.raw), queue, partial(self.session.pool.command, "HGET"))
            message["properties"]["delivery_tag"] = tag
            if unit.is_marked:
                message["properties"]["delivery_info"][REDELIVERED] = True
            # An invalid message would stop the consumer, again and again.
            self.Message(message, channel=self)
        except (PayloadError, InvalidTaskError, ValueError, LookupError, TypeError, AttributeError) as error:
            self.session.dead_letter(unit, f"kombu cannot deliver it: {error}", type(error).__name__)
            return None
        except RedisError:
            # The rest of its chain could not be read.
            self.session.give_back([unit])
            return None
        if self.session.is_revoked(message["headers"].get("id", "")):
            # Let the task expire: Celery's workers revoke expired tasks, and store that.
            message["headers"]["expires"] = _LONG_AGO
        self._units[tag] = unit
        return message

    # ---- settling

    def unit(self, delivery_tag: str) -> UnitOfWork | None:
        """The job of a delivery. None if it is settled, or comes from one of kombu's own queues."""
        return self._units.get(delivery_tag)

    def settle(self, delivery_tag: str) -> None:
        """Acknowledge a delivery."""
        for unit in self._taken(delivery_tag):
            self.session.acknowledge(unit)

    def refuse(self, delivery_tag: str, message: Any) -> None:
        """Refuse a delivery for good: a task is kept in `dead`; any other message is dropped, as in AMQP."""
        for unit in self._taken(delivery_tag):
            if message is None or "task" not in (message.headers or {}):
                self.session.acknowledge(unit)
            else:
                self.session.dead_letter(unit, "its consumer has rejected it", "celery.exceptions.Reject")

    def put_last(self, delivery_tag: str) -> None:
        """Requeue a delivery at the end of its queue."""
        for unit in self._taken(delivery_tag):
            self.session.put_last(unit, redelivered)

    def give_back(self, delivery_tags: Sequence[str]) -> None:
        """Requeue deliveries at the front of their queues, the first one first."""
        units = self._taken(*delivery_tags)
        if units:
            self.session.give_back(units)

    def _taken(self, *delivery_tags: str) -> list[UnitOfWork]:
        """Forget these deliveries. Returns the jobs of those that this process may settle."""
        units = [unit for tag in delivery_tags if (unit := self._units.pop(tag, None)) is not None]
        return [] if self.is_inherited else units

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        if message.delivery_tag in self._units:
            self.give_back([message.delivery_tag])
        else:
            virtual.Channel._restore(self, message)

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process that created the channel."""
        return self._pid != os.getpid()

    # ---- queues

    def _size(self, queue: str) -> int:
        if _is_passing(queue):
            return int(super()._size(queue))
        with as_kombus():
            commands = [("LLEN", keys.queue(name)) for name in levels(queue, self._steps)]
            return sum(self.session.pool.batch(commands))

    def _purge(self, queue: str) -> int:
        if _is_passing(queue):
            return int(super()._purge(queue))
        with as_kombus():
            return sum(empty(self.session.pool, name) for name in levels(queue, self._steps))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        """Delete a queue and everything in it, even if it has no bindings."""
        if if_empty and self._size(queue):
            return
        super().queue_delete(queue, if_unused, if_empty, **kwargs)
        if not _is_passing(queue) and queue not in self._fanout_queues:
            self._purge(queue)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        if _is_passing(queue):
            return bool(super()._has_queue(queue, **kwargs))
        names = levels(queue, self._steps)
        with as_kombus():
            commands: list[tuple[str, ...]] = [("EXISTS", *[keys.queue(name) for name in names])]
            commands += [("SISMEMBER", keys.QUEUES, name) for name in names]
            return any(self.session.pool.batch(commands))

    # ---- closing

    def close(self) -> None:
        """Requeue unsettled deliveries, and close all connections."""
        reader, self._reader = self._reader, None
        if reader is not None:
            if self.connection is not None:
                self.connection.cycle.discard(self)
            reader.forget() if self.is_inherited else reader.stop()
        super().close()
        visited, self._visited = self._visited, None
        if visited is not None:
            visited[1]()


def _is_passing(queue: str) -> bool:
    return _PASSING.fullmatch(queue) is not None


def _watched(kind: Any, channel: Channel) -> Any:
    """A connection class that notifies the poller when a connection is lost, as in kombu's own transport."""

    class Watched(kind):  # type: ignore[misc]
        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            super().disconnect(*args, **kwargs)
            # kombu 5.3 has no `_registered`.
            if getattr(channel, "_registered", True):
                channel._on_connection_disconnect(self)

    return Watched
