"""
Listen to a tracked batch: its scripts publish each change on a channel of the batch.

After subscribing, also after a lost connection, a listener must read the current rows. So the first change comes at
once and has no content. Changes within a short time are merged into one, so that a page is not redrawn a thousand times
a second.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.errors import BatchGoneError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool

EVERY_SECONDS = 0.25
IDLE_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# The longest wait in one call, so that a thread that waits for an async program ends soon after it.
_LONGEST_WAIT_SECONDS = 1.0
_SLOWEST_REPLY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Change:
    """
    The changes since the last one.

    Args:
        states: Maps the number of each changed row to its latest state.
        events: `complete`, `success`, `death`.
        is_fresh: True after subscribing, or resubscribing: earlier changes were not reported.
    """

    states: dict[int, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    is_fresh: bool = False

    def __bool__(self) -> bool:
        """True if there is something new to read."""
        return self.is_fresh or bool(self.states or self.events)


class Listener:
    """
    Listens to one batch. Use one of `changes` and `achanges`, once.

    Args:
        every: The least time between two changes, in seconds.
        idle: After this many seconds an empty change is yielded.
    """

    def __init__(self, pool: Pool, bid: str, every: float, idle: float) -> None:
        self._pool = pool
        self._bid = bid
        self._every = every
        self._idle = idle
        self._link: Link | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        self._yielded_at = self._received_at = time.monotonic()

    def __repr__(self) -> str:
        return f"<Listener of batch {self._bid}>"

    def changes(self) -> Iterator[Change]:
        """See `Batch.changes`."""
        try:
            while True:
                change = self._next()
                if change is not None:
                    yield change
        finally:
            self._close()

    async def achanges(self) -> AsyncIterator[Change]:
        """See `Batch.achanges`."""
        waits: asyncio.Task[Change | None] | None = None
        try:
            while True:
                waits = asyncio.create_task(asyncio.to_thread(self._next))
                change = await asyncio.shield(waits)
                if change is not None:
                    yield change
        finally:
            # The thread may read from the link for up to another second.
            if waits is not None and not waits.done():
                waits.add_done_callback(self._close_after)
            else:
                self._close()

    def _next(self) -> Change | None:
        """Wait for at most a second. Returns the change to yield, or None."""
        try:
            if self._link is None:
                self._subscribe()
                return self._note_yield(Change(is_fresh=True))
            change = self._collect(self._link)
        except RedisReplyError:
            raise
        except RedisError:
            self._close()
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            return None
        if change:
            return self._note_yield(change)
        if time.monotonic() - self._yielded_at < self._idle:
            return None
        self._look_whether_it_is_there()
        return self._note_yield(change)

    def _note_yield(self, change: Change) -> Change:
        self._yielded_at = time.monotonic()
        return change

    def _look_whether_it_is_there(self) -> None:
        if not self._pool.command("EXISTS", steps.key(self._bid)):
            raise BatchGoneError(self._bid)

    def _subscribe(self) -> None:
        self._look_whether_it_is_there()
        self._link = self._pool.new_link()
        self._link.connect()
        self._link.send(self._link.pack([("SUBSCRIBE", steps.channel(self._bid))]))
        self._link.receive()
        self._received_at = time.monotonic()

    def _collect(self, link: Link) -> Change:
        """Collect messages for up to a second; from the first message on until *every* seconds have passed."""
        change = Change()
        due = self._yielded_at + self._every
        if not link.has_unread and not link.wait_readable(min(_LONGEST_WAIT_SECONDS, self._idle)):
            # It has stayed open, though nothing came.
            self._pause = _FIRST_PAUSE_SECONDS
            now = time.monotonic()
            if now - self._received_at > 3 * self._idle + _SLOWEST_REPLY_SECONDS:
                raise RedisError("Redis has not answered a PING")
            if now - self._yielded_at >= self._idle:
                # A PING shows whether the connection has silently died.
                link.send(link.pack([("PING",)]))
            return change
        while True:
            reply = link.receive()
            self._received_at = time.monotonic()
            # Not once it is subscribed: a proxy may cut each connection right after that.
            self._pause = _FIRST_PAUSE_SECONDS
            if isinstance(reply, list) and reply[0] == b"message":
                self._add(change, reply[2])
            left = due - time.monotonic()
            if not link.has_unread and not link.wait_readable(max(0.0, left)):
                return change
            if left <= -self._every:
                return change

    @staticmethod
    def _add(change: Change, text: bytes) -> None:
        try:
            message = json.loads(text)
            events = [message["event"]] if "event" in message else []
            states = {int(number): message["state"] for number in message.get("numbers", ())}
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            # Another program has published it.
            return
        change.events.extend(events)
        change.states.update(states)

    def _close_after(self, wait: "asyncio.Task[Change | None]") -> None:
        # Retrieve the error of the abandoned wait, which nothing else does.
        if not wait.cancelled():
            wait.exception()
        self._close()

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
