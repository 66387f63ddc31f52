"""A node's end of kombu's pidbox: it reads commands from Redis, calls them and sends the replies."""

import logging
import os
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu import pidbox
from kombu.exceptions import EncodeError, OperationalError
from kombu.messaging import Producer
from kombu.utils.eventio import READ

from sidekiq_celery._pidbox.name_patterns import fits
from sidekiq_celery._pidbox.node import Node
from sidekiq_celery._pidbox.plain_values import plain

logger = logging.getLogger("celery.worker.control")

# How long replies to a client that has gone away are kept.
_REPLY_QUEUE_SECONDS = 60
# Errors that a message not made by kombu can raise, among many others. kombu takes some of them for signs of a lost
# connection.
_NONSENSE = (LookupError, TypeError, ValueError, AttributeError)
_MOST_ERRORS_IN_A_ROW = 20
_TICK_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
# Used when Redis answers but refuses (most likely a user without rights), or when the same error occurs again.
_LONG_PAUSE_SECONDS = 30.0


def listen(owner: Node) -> None:
    """Carry out commands until the node is stopped, whatever happens to the connection."""
    # A program may have several apps, and a new thread has no current one.
    owner.app.set_current()
    has_logged = False
    while not owner.is_stopping.is_set():
        try:
            with owner.app.connection_for_read() as connection:
                owner.connection = connection
                mailbox = _Mailbox(owner, connection)
                while not owner.is_stopping.is_set():
                    # The first one ends with Redis's answer to the subscription.
                    mailbox.drain(_TICK_SECONDS)
                    owner.has_tried.set()
                    has_logged = False
                    owner.tick()
                mailbox.close()
        except BaseException as error:  # noqa: BLE001 - remote control must survive any error
            pause = _PAUSE_SECONDS if _may_pass(owner.connection, error, has_logged) else _LONG_PAUSE_SECONDS
            if not has_logged:
                logger.warning("remote control failed and is retried in %d s: %s", pause, error)
            has_logged = True
            owner.has_tried.set()
            owner.tick()
            owner.is_stopping.wait(pause)


def _may_pass(connection: Any, error: BaseException, is_again: bool) -> bool:
    """True if the next try may succeed: the connection was lost, or a message caused the error."""
    lost = connection.connection_errors if connection is not None else (OSError,)
    refused = connection.channel_errors if connection is not None else ()
    return isinstance(error, (OperationalError, *lost)) or not (is_again or isinstance(error, refused))


class _KombuNode(pidbox.Node):
    """Replies over the connection it listens on, and never evaluates a foreign regular expression in this process."""

    answers: Callable[[str], bool]

    def handle_message(self, body: Any, message: Any = None) -> Any:
        """Do what kombu's node does, except that kombu matches with `re` in this process."""
        node: Any = super()
        if body.get("matcher") != "pcre" or not body.get("pattern") or body.get("destination"):
            return node.handle_message(body, message)
        if fits(str(self.hostname), body["pattern"]):
            return node.handle_message({**body, "matcher": None}, message)
        if message:
            self.adjust_clock(message.headers.get("clock") or 0)
        return None

    def dispatch(self, method: str, arguments: Any = None, reply_to: Any = None, ticket: Any = None, **_: Any) -> Any:
        """Carry out a command that is addressed to this node."""
        node: Any = super()
        return node.dispatch(method, arguments, reply_to, ticket) if self.answers(method) else None

    def reply(self, data: Any, exchange: str, routing_key: str, ticket: str, **kwargs: Any) -> None:
        mailbox: Any = self.mailbox
        producer = Producer(self.channel, auto_declare=False)
        options = {
            "exchange": exchange,
            "routing_key": routing_key,
            "headers": {"ticket": ticket, "clock": mailbox.clock.forward()},
            "serializer": mailbox.serializer,
            "retry": False,
        }
        try:
            producer.publish(data, **options)
        except (EncodeError, TypeError, ValueError):
            producer.publish(plain(data), **options)
        self._limit_life(exchange, routing_key)

    def _limit_life(self, exchange: str, routing_key: str) -> None:
        channel: Any = self.channel
        names = [queue for key, _, queue in channel.get_table(exchange) if key == routing_key]
        if names:
            with channel.conn_or_acquire() as client:
                # kombu's client never adds the key prefix for EXPIRE, and only since 5.6 for PEXPIRE.
                is_done_there = "PEXPIRE" in getattr(client, "PREFIXED_SIMPLE_COMMANDS", ())
                prefix = "" if is_done_there else channel.global_keyprefix
                for name in names:
                    client.pexpire(prefix + name, _REPLY_QUEUE_SECONDS * 1000)


class _Mailbox:
    """
    A node's pidbox on one connection.

    Args:
        owner: The owner of the commands.
        connection: A kombu connection.

    Raises:
        Exception: Redis cannot be reached.
    """

    def __init__(self, owner: Node, connection: Any) -> None:
        self._owner = owner
        self._connection = connection
        self._channel = connection.channel()
        mailbox = owner.app.control.mailbox(connection)
        make_node: Any = _KombuNode
        self._node: Any = make_node(
            owner.hostname,
            state=owner.state,
            channel=self._channel,
            handlers=owner.handlers,
            mailbox=mailbox,
        )
        self._node.answers = owner.answers
        self._consumer = self._node.Consumer(
            callbacks=[self._on_message], on_decode_error=self._on_decode_error, channel=self._channel
        )
        self._consumer.consume()
        self._errors_in_a_row = 0
        self._has_more = False
        self._transport = connection.transport
        self._lost = (OperationalError, *connection.connection_errors)
        self._of_redis = (*self._lost, *connection.channel_errors)
        self._pid = os.getpid()
        cycle = self._transport.cycle
        cycle.poller.register(owner.wake_fd, READ)
        read = cycle.on_readable

        def read_if_ours(fileno: int) -> Any:
            self._rest_if_copied()
            return read(fileno)

        cycle.on_readable = read_if_ours

    def drain(self, seconds: float) -> None:
        """
        Carry out the next command, if one comes in time.

        Raises:
            Exception: The connection is lost.
        """
        try:
            if self._has_more:
                self._channel.handlers["LISTEN"]()
            else:
                # Wait once: `drain_events` would start over after the pipe has ended the wait.
                self._transport.cycle.get(self._transport._deliver, timeout=seconds)
        except Empty:
            self._rest_if_copied()
            self._transport.cycle.maybe_check_subclient_health()
        except Exception as error:
            if isinstance(error, self._of_redis) and not isinstance(error, _NONSENSE):
                raise
            if self._owner.is_stopping.is_set():
                # Before 5.7, kombu has an error for the pipe that ends the wait.
                return
            # If every message fails, the connection may be lost after all.
            self._errors_in_a_row += 1
            if self._errors_in_a_row > _MOST_ERRORS_IN_A_ROW:
                raise
            logger.error("a message to remote control is malformed, and is ignored: %r", error)
            # Messages that arrived in the same read are in redis-py's buffer; the socket does not show as readable.
            reader = self._channel.subclient.connection
            self._has_more = reader is not None and reader.can_read(timeout=0)
            return
        self._errors_in_a_row = 0
        self._has_more = False

    def _rest_if_copied(self) -> None:
        # With gevent, a fork copies this thread. The socket is shared, and what the copy reads, the worker misses.
        while os.getpid() != self._pid:
            time.sleep(3600)

    def close(self) -> None:
        """Remove this node from Redis."""
        self._consumer.cancel()
        self._channel.close()

    def _on_message(self, body: Any, message: Any) -> None:
        self._owner.app.clock.forward()
        if not isinstance(body, dict) or not isinstance(body.get("method"), str):
            logger.error("a message to remote control names no command, and is ignored: %.200r", body)
            return
        try:
            self._owner.note_deadline(message.headers.get("expires"))
            self._node.handle_message(body, message)
        except SystemExit as asked:
            self._owner.stop_by_command(f"the command {body['method']!r} stops the worker: {asked!r}")
        except Exception as error:
            # If Redis refuses a command here, it refused the reply; the client chose where that goes.
            if isinstance(error, self._lost) and not isinstance(error, _NONSENSE):
                raise
            logger.error("the command %.100r cannot be carried out: %r", body["method"], error)

    def _on_decode_error(self, message: Any, error: Exception) -> None:
        logger.error("a message to remote control cannot be read, and is ignored: %r", error)
