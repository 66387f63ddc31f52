"""
Pushes that extensions take part in: they see the finished jobs, and their commands run in the script that pushes.
"""

from typing import Self

from sidekiq_py import program
from sidekiq_py.client.outgoing import emit_pushed
from sidekiq_py.errors import PushOutcomeUnknownError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.async_pool import AsyncPool
from sidekiq_py.redis_access.job_path.push import PushSlice, advised
from sidekiq_py.redis_access.job_path.settle_script import Effect, Once
from sidekiq_py.redis_access.job_path.watched_push import LEAST_JOBS, WatchedPushes
from sidekiq_py.telemetry import PUSH


def is_left_to_others(pushed: PushSlice) -> bool:
    """True if there is nothing to send, because all jobs were stopped or a test keeps them."""
    return pushed.is_empty or (program.interceptor is not None and program.interceptor(pushed.outgoing))


def send(pool: Pool, pushed: PushSlice, lost: ReplyLostError | None = None) -> None:
    """
    Push jobs together with the extensions' commands, in one script.

    Args:
        lost: The error of a first try whose reply was lost. *pushed* must have `once`, which keeps this try from
            repeating it.

    Raises:
        RedisError: It was not enqueued; after `PushOutcomeUnknownError`, it may have been.
        Exception: An extension's own command was refused; nothing was pushed.
    """
    effects = effects_of(pushed)

    def write(link: Link) -> None:
        nonlocal lost
        try:
            settle_script.write(link, effects, pushes=True)
        except ReplyLostError as error:
            lost = error
            raise
        except RedisError as error:
            if lost is not None and error.is_about_server:
                # The outcome of the first try is still unknown.
                raise lost from error
            raise

    try:
        pool.run(write, idempotent=pushed.once is not None)
    except ReplyLostError as error:
        raise PushOutcomeUnknownError(pushed.jids, error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or advised(refusal) from refusal
    _note_pushed(pushed)


class Slices:
    """
    Pushes the slices of a bulk push one after another on one connection, so that the next slice is prepared while Redis
    executes the last one. Every call, and the end of the block, raises what `send` would raise for the previous slice.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._link: Link | None = None
        self._pending: PushSlice | None = None
        # Used from the second slice on: then there may be many, and each one's checks go along with the slice before.
        self._watched: WatchedPushes | None = None
        self._is_watched = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        link, is_clean = self._link, False
        try:
            if kind is None or issubclass(kind, Exception):
                self.settle()
            is_clean = kind is None and (self._watched is None or self._watched.end())
        finally:
            self._pending = None
            if link is not None:
                if not is_clean:
                    link.close()
                self._pool.release(link)

    def send(self, pushed: PushSlice) -> None:
        """Read the result of the last slice, then send this one."""
        self.settle()
        if self._link is None:
            self._link = self._pool.acquire()
        elif self._is_sent_watched(pushed):
            return
        call, _ = settle_script.write_calls(effects_of(pushed), pushes=True)
        self._link.send(self._link.pack([call]))
        self._pending, self._is_watched = pushed, False

    def _is_sent_watched(self, pushed: PushSlice) -> bool:
        """Send the slice in a transaction if possible. Returns True if it was sent."""
        watched, push_batches = pushed.watched, pushed.push_batches
        # Commands of other extensions need the script.
        if watched is None or self._link is None or len(pushed.effects) > 1 or len(push_batches) > 1:
            return False
        [batch] = push_batches
        if len(batch.jids) < LEAST_JOBS:
            return False
        if self._watched is None:
            self._watched = WatchedPushes(self._link)
        try:
            if not self._watched.may_push(watched, batch.queue):
                return False
        except RedisError:
            return False
        self._pending, self._is_watched = pushed, True
        try:
            self._watched.send(watched, batch.queue, batch.commands(self._pool.key_prefix))
        except ReplyLostError as error:
            self._pending = None
            send(self._pool, pushed, lost=error)
        return True

    def _receive(self, link: Link) -> bool:
        """Read the replies for the last slice. Returns False if nothing of it was done."""
        if self._is_watched and self._watched is not None:
            return self._watched.settle()
        link.receive()
        return True

    def settle(self) -> None:
        """Read the result of the last slice."""
        pushed, self._pending = self._pending, None
        if pushed is None or self._link is None:
            return
        try:
            is_done = self._receive(self._link)
        except RedisReplyError as refusal:
            if self._is_watched or (refusal.code != "NOSCRIPT" and refusal.code not in FAILOVER_CODES):
                raise program.extensions.explained(str(refusal)) or advised(refusal) from refusal
            is_done = False
        except ReplyLostError as error:
            if pushed.once is None:
                raise PushOutcomeUnknownError(pushed.jids, error) from error
            send(self._pool, pushed, lost=error)
            return
        if is_done:
            _note_pushed(pushed)
        else:
            send(self._pool, pushed)


async def asend(pool: AsyncPool, pushed: PushSlice) -> None:
    """The awaitable counterpart of `send`."""
    try:
        await pool.run_script(
            *settle_script.write_calls(effects_of(pushed), pushes=True), idempotent=pushed.once is not None
        )
    except ReplyLostError as error:
        raise PushOutcomeUnknownError(pushed.jids, error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or advised(refusal) from refusal
    _note_pushed(pushed)


def _note_pushed(pushed: PushSlice) -> None:
    if pushed.when_pushed is not None:
        pushed.when_pushed()
    if PUSH.handlers:
        emit_pushed(*pushed.push_batches)


def effects_of(pushed: PushSlice) -> list[Effect]:
    """The commands that the script runs."""
    commands = [*pushed.effects, *(word for batch in pushed.push_batches for word in batch.script_commands())]
    return [*commands] if pushed.once is None else [Once(*pushed.once, tuple(commands))]
