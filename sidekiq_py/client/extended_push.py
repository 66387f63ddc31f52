"""
A push that extensions have a say in: they see the finished jobs, and their commands ride in the script that pushes.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sidekiq_py import program
from sidekiq_py.client.bulk import tell_pushed_batch
from sidekiq_py.errors import PushOutcomeUnknownError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import PushSlice
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.async_pool import AsyncPool
from sidekiq_py.redis_access.job_path.push import PushBatch
from sidekiq_py.redis_access.job_path.settle_script import Effect, Once
from sidekiq_py.registry import Payload
from sidekiq_py.telemetry import PUSH
from sidekiq_py.wire.dialect import Dialect


def shown_to_extensions(
    push_batches: Sequence[PushBatch],
    class_name: str,
    options: Mapping[str, Any],
    pool: Pool,
    dialect: Dialect,
    follows: Payload | None = None,
) -> PushSlice:
    """
    The jobs as the extensions leave them.

    Args:
        follows: The payload of the job whose end writes them, if one does.

    Raises:
        Exception: What a hook raises; nothing is to be pushed.
    """
    return program.extensions.push(PushSlice(push_batches, class_name, options, pool, dialect, follows))


def is_left_to_others(pushed: PushSlice) -> bool:
    """There is nothing to send: all jobs were stopped, or a test keeps them."""
    return pushed.is_empty or (program.interceptor is not None and program.interceptor(pushed.outgoing))


def send(pool: Pool, pushed: PushSlice, lost: ReplyLostError | None = None) -> None:
    """
    Push, in one script with what the extensions write.

    Args:
        lost: The reply to a first try was; this one can be told from it (`once`).

    Raises:
        RedisError: It was not enqueued; with `PushOutcomeUnknownError` nobody knows.
        Exception: What an extension raises where its own command was refused; nothing was pushed.
    """
    effects = effects_of(pushed)

    def write(link: Link) -> None:
        nonlocal lost
        try:
            settle_script.write(link, effects)
        except ReplyLostError as error:
            lost = error
            raise
        except RedisError as error:
            if lost is not None and error.is_about_server:
                # Of the first try nobody knows any more now than before.
                raise lost from error
            raise

    try:
        pool.run(write, idempotent=pushed.once is not None)
    except ReplyLostError as error:
        raise PushOutcomeUnknownError(pushed.jids, error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or refusal from refusal
    _tell_pushed(pushed)


class Slices:
    """
    Slices of a bulk push, one behind the other on one connection: the next one is made ready while Redis works on the
    last one. Every call raises what `send` raises, for the slice before it; so does the end of the block.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._link: Link | None = None
        self._pending: PushSlice | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link = self._link
        try:
            if kind is None or issubclass(kind, Exception):
                self.settle()
        except BaseException:
            self._pending = None
            raise
        finally:
            if link is not None:
                if kind is not None:
                    link.close()
                self._pool.release(link)

    def send(self, pushed: PushSlice) -> None:
        """Read what the last slice came to, then send this one."""
        self.settle()
        link = self._link = self._link or self._pool.acquire()
        call, _ = settle_script.write_calls(effects_of(pushed))
        link.send(link.pack([call]))
        self._pending = pushed

    def settle(self) -> None:
        """Read what the last slice came to."""
        pushed, self._pending = self._pending, None
        if pushed is None or self._link is None:
            return
        try:
            self._link.receive()
        except RedisReplyError as refusal:
            if refusal.code != "NOSCRIPT" and refusal.code not in FAILOVER_CODES:
                raise program.extensions.explained(str(refusal)) or refusal from refusal
            # Nothing was written.
            send(self._pool, pushed)
        except ReplyLostError as error:
            if pushed.once is None:
                raise PushOutcomeUnknownError(pushed.jids, error) from error
            send(self._pool, pushed, lost=error)
        else:
            _tell_pushed(pushed)


async def asend(pool: AsyncPool, pushed: PushSlice) -> None:
    """The awaited twin of `send`."""
    try:
        await pool.run_script(*settle_script.write_calls(effects_of(pushed)), idempotent=pushed.once is not None)
    except ReplyLostError as error:
        raise PushOutcomeUnknownError(pushed.jids, error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or refusal from refusal
    _tell_pushed(pushed)


def _tell_pushed(pushed: PushSlice) -> None:
    if PUSH.handlers:
        for batch in pushed.push_batches:
            tell_pushed_batch(batch)


def effects_of(pushed: PushSlice) -> list[Effect]:
    """What the script writes."""
    commands = [*pushed.effects, *(word for batch in pushed.push_batches for word in batch.script_commands())]
    return [*commands] if pushed.once is None else [Once(*pushed.once, tuple(commands))]
