"""
Moves messages from the queues of any broker that kombu supports to Sidekiq's.

Messages are fetched one by one, written in batches with a mark for each, and then acknowledged. The broker redelivers
messages that a killed bridge has not acknowledged, and the mark shows that they were already written.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sidekiq_celery.bridge import moves
from sidekiq_celery.bridge.envelope import Envelope, body_bytes
from sidekiq_celery.bridge.fates import Found, Left, Moved, too_large
from sidekiq_celery.bridge.forward import Forward
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import WINDOW_BYTES, Side
from sidekiq_celery.bridge.transfer import (
    AFTERGLOW_SECONDS,
    MARK_SECONDS,
    WRITING_SECONDS,
    TooLateError,
    mark_key,
    outcomes,
)
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_py.extension import Command, monotonic

_BATCH_MESSAGES = 200
# How long messages that stay are held back from Celery's workers while there are more to read.
_HOLD_SECONDS = 10.0
# A quorum queue drops a message that was returned too often (RabbitMQ 4: 20 times). A copy starts counting again.
_MOST_RETURNS = 5
_DELIVERY_COUNT = "x-delivery-count"
_UUID_LENGTH = 36


class _Delivery(NamedTuple):
    tag: Any
    found: Found
    envelope: Envelope | None
    mark: Command
    is_worn: bool


class KombuRoute:
    """
    Scans queues repeatedly.

    Args:
        connect: Creates a `kombu.Connection` to the source.
        target: Sidekiq's Redis.
        is_dry: True to only count the messages.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        queues: Sequence[str],
        judge: Forward,
        target: Side,
        *,
        most_bytes: int,
        is_dry: bool = False,
    ) -> None:
        self._connect = connect
        self._queues = queues
        self._judge = judge
        self._target = target
        self._most_bytes = most_bytes
        self._is_dry = is_dry
        self._connection: Any = None
        self._channel: Any = None

    def look_through(self, ledger: Ledger, is_stopping: Callable[[], bool]) -> bool:
        """Scan all queues once. Returns True if anything was moved."""
        before = ledger.count_moved
        ledger.left.clear()
        for queue in self._queues:
            waiting = self._count(queue)
            if waiting is None:
                ledger.notes[f"there is no queue {queue!r} at the source"] = 1
            elif self._is_dry:
                ledger.moved[queue]["waiting"] = waiting
            else:
                try:
                    self._empty(queue, ledger, is_stopping)
                except TooLateError:
                    self.close()
        return ledger.count_moved > before and not self._is_dry

    def close(self) -> None:
        """Close the connection. Messages that were not acknowledged return to the broker."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            connection.close()

    def _empty(self, queue: str, ledger: Ledger, is_stopping: Callable[[], bool]) -> None:
        stays: list[_Delivery] = []
        try:
            self._move_all(queue, ledger, is_stopping, stays)
        except BaseException:
            # Closing the connection returns all unacknowledged messages to the broker.
            self.close()
            raise
        for delivery in reversed(stays):
            self._give_back(delivery)

    def _move_all(self, queue: str, ledger: Ledger, is_stopping: Callable[[], bool], stays: list[_Delivery]) -> None:
        began = monotonic()
        while not is_stopping():
            read_at = moves.server_seconds(self._target.pool)
            batch = self._get(queue, is_stopping)
            if not batch:
                return
            before = ledger.count_moved
            stays += self._move(batch, ledger, read_at)
            if stays and ledger.count_moved > before and monotonic() - began > _HOLD_SECONDS:
                return

    def _get(self, queue: str, is_stopping: Callable[[], bool]) -> list[_Delivery]:
        batch: list[_Delivery] = []
        bytes_left = WINDOW_BYTES
        while len(batch) < _BATCH_MESSAGES and bytes_left > 0 and not is_stopping():
            message = self._open_channel().basic_get(queue=queue, no_ack=False)
            if message is None:
                break
            delivery = self._delivery(queue, message)
            bytes_left -= len(delivery.found.text)
            batch.append(delivery)
        return batch

    def _move(self, batch: Sequence[_Delivery], ledger: Ledger, read_at: int) -> list[_Delivery]:
        """Write and acknowledge the messages that can be moved. Returns those that stay."""
        stays: list[_Delivery] = []
        items: list[tuple[_Delivery, Moved]] = []
        for delivery in batch:
            found = delivery.found
            most = self._most_bytes
            fate = too_large(most) if len(found.text) > most else self._judge.judge(found, delivery.envelope)
            if isinstance(fate, Left):
                ledger.leave(found.queue, fate.reason)
                stays.append(delivery)
            else:
                items.append((delivery, fate))
        self._write(items, ledger, read_at)
        # Keep only what is needed to return them, because there may be many.
        return [
            one._replace(found=Found(one.found.queue, b""), envelope=one.envelope if one.is_worn else None)
            for one in stays
        ]

    def _write(self, items: Sequence[tuple[_Delivery, Moved]], ledger: Ledger, read_at: int) -> None:
        if not items:
            return
        wanted = [(delivery.mark, moved) for delivery, moved in items]
        done = outcomes("forward", self._target, wanted, read_at + WRITING_SECONDS)
        for is_done, (delivery, moved) in zip(done, items, strict=True):
            ledger.count(delivery.found.queue, moved.kind if is_done else "duplicates", moved.note)
        self._acknowledge([delivery for delivery, _ in items])

    def _acknowledge(self, deliveries: Sequence[_Delivery]) -> None:
        channel = self._open_channel()
        for delivery in deliveries:
            channel.basic_ack(delivery.tag)
        # An acknowledgement gets no reply, but the query after it does.
        self._count(deliveries[0].found.queue)
        self._target.pool.batch([("EXPIRE", delivery.mark[1], AFTERGLOW_SECONDS) for delivery in deliveries])

    def _give_back(self, delivery: _Delivery) -> None:
        channel = self._open_channel()
        if not delivery.is_worn:
            channel.basic_reject(delivery.tag, requeue=True)
            return
        # Better twice than not at all: the copy is confirmed before the message is removed.
        envelope = delivery.envelope
        assert envelope is not None
        headers = {name: value for name, value in envelope.headers.items() if name != _DELIVERY_COUNT}
        envelope._replace(headers=headers).publish(self._connection.Producer(channel), delivery.found.queue)
        channel.basic_ack(delivery.tag)

    def _delivery(self, queue: str, message: Any) -> _Delivery:
        """Read a message as delivered by kombu's virtual transports, or by amqp."""
        info: dict[str, Any] = dict(message.delivery_info or {})
        raw = getattr(message, "_raw", None)
        if raw is not None:
            text = json.dumps(raw, default=repr).encode()
            found, envelope, is_new = Found(queue, text), None, False
            stable = {**raw, "properties": None, "headers": {**(raw.get("headers") or {}), "redelivered": None}}
            tag = str((raw.get("properties") or {}).get("delivery_tag"))
            # A uuid comes from the producer, anything else from the delivery.
            identity = tag if len(tag) == _UUID_LENGTH else _digest(json.dumps(stable, default=repr).encode())
            task_id = (raw.get("headers") or {}).get("id")
        else:
            envelope = _of_amqp(message)
            found, is_new = Found(queue, envelope.as_text(queue)), not info.get("redelivered")
            retries, task_id = envelope.headers.get("retries"), envelope.headers.get("id")
            identity = _digest(f"{retries} ".encode() + envelope.body)
        key = mark_key(self._target, f"{task_id}:{identity}")
        returns = envelope.headers.get(_DELIVERY_COUNT) if envelope else None
        # Classic queues pass on what the producer has put there.
        is_worn = type(returns) is int and returns >= _MOST_RETURNS
        condition = ("MARK" if is_new else "NEW", key, MARK_SECONDS)
        return _Delivery(message.delivery_tag, found, envelope, condition, is_worn)

    def _count(self, queue: str) -> int | None:
        """The number of waiting messages. Returns None if there is no such queue."""
        try:
            return int(self._open_channel().queue_declare(queue=queue, passive=True).message_count)
        except self._connection.channel_errors as error:
            self._channel = None
            if getattr(error, "reply_code", getattr(error, "code", None)) in (404, None):
                return None
            raise

    def _open_channel(self) -> Any:
        if self._channel is None:
            if self._connection is None:
                self._connection = self._connect()
            self._channel = self._connection.channel()
            # Otherwise amqp decodes bodies with whatever encoding they name, and not all of these can be undone.
            self._channel.auto_decode = False
        return self._channel


def _of_amqp(message: Any) -> Envelope:
    properties = dict(message.properties)
    headers = dict(properties.pop("application_headers", None) or {})
    encoding = str(properties.pop("content_encoding", None) or "utf-8")
    content_type = str(properties.pop("content_type", None) or "application/data")
    try:
        return Envelope(headers, properties, content_type, encoding, body_bytes(message.body))
    except InvalidTaskError:
        return Envelope(headers, properties, content_type, encoding, b"")


def _digest(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
