"""
Moves messages back to a broker other than Redis: kombu publishes each message, and its claim is removed once the broker
has confirmed it.

Such a broker cannot store marks. Instead, a bridge signals that it is alive, and others leave its claims alone. If a
bridge is killed after a message was confirmed and before its claim is removed, the next bridge publishes that message
again: at most one message each time a bridge dies.
"""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from amqp.serialization import dumps  # type: ignore[import-untyped]

from sidekiq_celery.bridge.envelope import TEXT_PROPERTIES, Envelope, QueueFullError
from sidekiq_celery.bridge.fates import Fate, Found, Judge, Left, Moved
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.transfer import ALIVE_SECONDS, Claim, Claims, Item, TooLateError
from sidekiq_celery.contract import App
from sidekiq_py.extension import monotonic

logger = logging.getLogger("celery.bridge")

# RabbitMQ sends copies to the queues that these headers list.
_COPIED_TO = ("CC", "BCC")
# Headers and properties are one frame, and RabbitMQ's frames hold 128 KiB.
_MOST_HEAD_BYTES = 127 * 1024

UNSENDABLE = "AMQP cannot hold it: a header or property is too large or malformed; a worker here has to run it"


def for_amqp(judge: Judge) -> Judge:
    """A judge that also leaves the messages that AMQP cannot hold, before they are claimed."""

    def judge_for_amqp(found: Found) -> Fate:
        fate = judge(found)
        if isinstance(fate, Moved) and fate.envelope is not None and not _fits_amqp(fate.envelope):
            return Left(UNSENDABLE)
        return fate

    return judge_for_amqp


def _fits_amqp(envelope: Envelope) -> bool:
    """RabbitMQ closes a connection that brings anything else, and would do so again and again."""
    headers, properties = envelope.headers, envelope.published_properties()
    if any(type(headers.get(name, [])) is not list for name in _COPIED_TO):
        return False
    texts = [properties.get(name) for name in TEXT_PROPERTIES]
    values = [envelope.content_type, envelope.content_encoding, headers, properties.get("priority", 0), *texts]
    try:
        # RabbitMQ's numbers are finite.
        json.dumps(headers, allow_nan=False)
        head = dumps("ssFo" + "s" * len(texts), values)
    except Exception:  # noqa: BLE001 - amqp raises whatever it comes across, such as struct.error
        return False
    return len(head) <= _MOST_HEAD_BYTES


class Publishing:
    """
    Publishes claimed messages.

    Args:
        app: The app whose `task_queues` are declared if the broker lacks them.
        connect: Creates a `kombu.Connection` that waits for confirmations.
        claims: The claims at the source.
    """

    def __init__(self, app: App, connect: Callable[[], Any], claims: Claims) -> None:
        self._app = app
        self._connect = connect
        self.claims = claims
        self._connection: Any = None
        self._producer: Any = None
        self._declared: set[str] = set()
        self._alive_at = 0.0
        self.refused: dict[str, QueueFullError] = {}
        self._warned: set[str] = set()

    def carry(self, items: Sequence[Item], ledger: Ledger) -> None:
        """Claim messages, publish them, and remove the claims."""
        for _, moved in items:
            # Declared before anything is claimed, because the broker may refuse it.
            self._declare(moved.queue)
        self._publish_all(lambda: self.claims.make(items), ledger)

    def try_again(self) -> None:
        """Publish to the queues again that have refused a message."""
        # One that refuses again and again is warned of once.
        self._warned &= self.refused.keys()
        self.refused.clear()

    def may_finish(self, claim_ids: Sequence[str]) -> Sequence[str]:
        """The claims of this bridge, and of those that are no longer alive."""
        return self.claims.orphans(claim_ids)

    def finish(self, claims: Callable[[], Sequence[Claim]], ledger: Ledger) -> None:
        """
        Publish claimed messages, and remove the claims.

        Raises:
            TooLateError: This bridge was stalled, and others may have taken over its claims.
        """
        # Several bridges may find the claims of one that is gone.
        self._publish_all(lambda: self.claims.adopt(claims()), ledger)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._producer = self._connection, None, None
        self._declared.clear()
        if connection is not None:
            connection.close()

    def _publish_all(self, claims: Callable[[], Sequence[Claim]], ledger: Ledger) -> None:
        # Others leave the claims of a bridge alone that is known to be alive.
        self.claims.stay_alive(again=False)
        self._alive_at = monotonic()
        for claim in claims():
            self._stay_alive()
            queue = claim.found.queue
            if queue not in self.refused:
                self._publish(claim)
            if queue in self.refused:
                # Still claimed, and the first to be published once the queue takes messages again.
                ledger.leave(queue, "claimed, and refused by the broker, because their queue may be full")
                continue
            self.claims.forget([claim])
            ledger.count(queue, claim.moved.kind, claim.moved.note)

    def _publish(self, claim: Claim) -> None:
        envelope, queue = claim.moved.envelope, claim.moved.queue
        assert envelope is not None
        self._declare(queue)
        try:
            envelope.publish(self._producer, queue)
        except QueueFullError as error:
            self.refused[claim.found.queue] = error
            if claim.found.queue not in self._warned:
                self._warned.add(claim.found.queue)
                logger.warning("bridge: Celery's broker refuses messages: %s; the other queues go on", error)

    def _stay_alive(self) -> None:
        now = monotonic()
        if now - self._alive_at > ALIVE_SECONDS / 3:
            if not self.claims.stay_alive(again=True):
                raise TooLateError
            self._alive_at = now

    def _declare(self, queue: str) -> None:
        """Make sure that the broker has the queue; a message for a missing queue would be dropped."""
        if self._connection is None:
            self._connection = self._connect()
        if queue in self._declared:
            return
        channel = self._connection.channel()
        try:
            # An existing queue may have been declared with other arguments than the app's.
            channel.queue_declare(queue=queue, passive=True)
        except self._connection.channel_errors:
            channel = self._connection.channel()
            self._app.amqp.queues[queue](channel).declare()
        self._declared.add(queue)
        self._producer = self._connection.Producer(channel)
