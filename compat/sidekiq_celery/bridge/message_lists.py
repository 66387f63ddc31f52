"""
The places that hold messages in a Redis, read window by window.

Reading removes nothing. Messages that stay are skipped: a window begins after the messages that were left before, so
it does not matter how many there are.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from sidekiq_celery.bridge import moves
from sidekiq_celery.bridge.fates import MALFORMED, Found, too_large
from sidekiq_celery.bridge.layout import CeleryLayout
from sidekiq_py import payloads
from sidekiq_py.errors import PayloadError
from sidekiq_py.extension import Pool

WINDOW_MESSAGES = 500
WINDOW_BYTES = 8 * 1024 * 1024


class Side(NamedTuple):
    """
    One end of the bridge, if it is a Redis.

    Args:
        pool: A pool without a namespace, so that one script can use the keys of both ends.
        prefix: The prefix of each key.
    """

    pool: Pool
    prefix: str

    def key(self, name: str) -> str:
        """The full key on the server."""
        return self.prefix + name


class MessageStore(Protocol):
    """One key, or pair of keys, with messages."""

    def read(self, behind: int) -> Sequence[Found | None]:
        """The next window, after skipping *behind* that stay; None is one of another queue. Empty at the end."""


class MessageList:
    """
    A list: one priority step of a queue.

    Args:
        key: The full key on the server.
        most_bytes: For a larger message, only the length is read.
    """

    def __init__(self, side: Side, key: str, queue: str, most_bytes: int) -> None:
        self._pool = side.pool
        self._key = key
        self.queue = queue
        self._most_bytes = most_bytes

    def read(self, behind: int) -> Sequence[Found]:
        """The next window, oldest message first."""
        texts = moves.read_tail(
            self._pool,
            self._key,
            behind=behind,
            count=WINDOW_MESSAGES,
            most_bytes=WINDOW_BYTES,
            most_bytes_each=self._most_bytes,
        )
        return [
            Found(self.queue, b"", left=too_large(self._most_bytes))
            if isinstance(text, int)
            else Found(self.queue, text, ("LREM", self._key, text))
            for text in texts
        ]


class Unacked:
    """
    The messages of the given queues that Celery's workers have taken and not acknowledged.

    Args:
        after_seconds: Only messages that were taken at least this long ago.
    """

    def __init__(self, side: Side, layout: CeleryLayout, queues: Sequence[str], after_seconds: float) -> None:
        self._side = side
        self._layout = layout
        self._queues = frozenset(queues)
        self._after_seconds = after_seconds

    def read(self, behind: int) -> Sequence[Found | None]:
        """The next window, in the order in which the messages were taken."""
        hash_key, index = self._side.key(self._layout.unacked), self._side.key(self._layout.unacked_index)
        tags = self._side.pool.command(
            *("ZRANGEBYSCORE", index, "-inf", time.time() - self._after_seconds),
            *("LIMIT", behind, WINDOW_MESSAGES),
        )
        records = self._side.pool.command("HMGET", hash_key, *tags) if tags else []
        return [self._found(hash_key, index, *one) for one in zip(tags, records, strict=True)]

    def _found(self, hash_key: str, index: str, tag: bytes, record: bytes | None) -> Found | None:
        try:
            message, exchange, routing_key = json.loads(record or b"")
            text = json.dumps(message).encode()
            queue = self._queue_of(str(exchange or ""), str(routing_key or ""))
        except MALFORMED:
            return None
        if queue not in self._queues:
            return None
        return Found(queue, text, ("HDEL", hash_key, tag, record, index))

    def _queue_of(self, exchange: str, routing_key: str) -> str | None:
        if not exchange:
            return routing_key
        members = self._side.pool.command("SMEMBERS", self._side.key(self._layout.binding_key(exchange)))
        return self._layout.bound_queue(sorted(members), routing_key)


class JobSet:
    """
    The jobs of the given queues in Sidekiq's set `schedule` or `retry`.

    Args:
        queue_of: Removes a priority step from a queue's name.
    """

    def __init__(self, side: Side, name: str, queues: Sequence[str], queue_of: Callable[[str], str]) -> None:
        self._pool = side.pool
        self._key = side.key(name)
        self._queues = frozenset(queues)
        self._queue_of = queue_of

    def read(self, behind: int) -> Sequence[Found | None]:
        """The next window, in the order in which the jobs are due."""
        reply = self._pool.command("ZRANGE", self._key, behind, behind + WINDOW_MESSAGES - 1, "WITHSCORES")
        return [self._found(*one) for one in zip(reply[::2], reply[1::2], strict=True)]

    def _found(self, member: bytes, score: bytes) -> Found | None:
        try:
            queue = self._queue_of(str(payloads.parse_job(member).get("queue")))
        except (PayloadError, *MALFORMED):
            return None
        return Found(queue, member, ("ZREM", self._key, member), float(score)) if queue in self._queues else None
