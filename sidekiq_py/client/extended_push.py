"""
A push that extensions have a say in: they see the finished jobs, and their commands ride in the script that pushes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sidekiq_py import program
from sidekiq_py.client import outgoing
from sidekiq_py.errors import PushOutcomeUnknownError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import PushedJob, PushSlice
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.async_pool import AsyncPool
from sidekiq_py.redis_access.job_path.in_flight import Effect, Once
from sidekiq_py.redis_access.job_path.push import Outgoing, push_commands
from sidekiq_py.registry import Payload
from sidekiq_py.telemetry import PUSH
from sidekiq_py.wire.dialect import Dialect


def shown_to_extensions(
    jobs: Sequence[Outgoing],
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
    pushed = [PushedJob(job.jid, job.queue, job.score, job.payload) for job in jobs]
    return program.extensions.push(PushSlice(pushed, class_name, options, pool, dialect, follows))


def is_left_to_others(pushed: PushSlice) -> bool:
    """There is nothing to send: all jobs were stopped, or a test keeps them."""
    left = pushed.outgoing
    return not left or (program.interceptor is not None and program.interceptor(left))


def send(pool: Pool, pushed: PushSlice) -> None:
    """
    Push, in one script with what the extensions write.

    Raises:
        RedisError: It was not enqueued; with `PushOutcomeUnknownError` nobody knows.
        Exception: What an extension raises where its own command was refused; nothing was pushed.
    """
    effects = effects_of(pushed)
    lost: ReplyLostError | None = None

    def write(link: Link) -> None:
        nonlocal lost
        try:
            in_flight.write(link, effects)
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
        raise PushOutcomeUnknownError([job.jid for job in pushed.outgoing], error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or refusal from refusal
    _tell_pushed(pushed)


async def asend(pool: AsyncPool, pushed: PushSlice) -> None:
    """The awaited twin of `send`."""
    try:
        await pool.run_script(*in_flight.write_calls(effects_of(pushed)), idempotent=pushed.once is not None)
    except ReplyLostError as error:
        raise PushOutcomeUnknownError([job.jid for job in pushed.outgoing], error) from error
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or refusal from refusal
    _tell_pushed(pushed)


def _tell_pushed(pushed: PushSlice) -> None:
    if not PUSH.handlers:
        return
    by_place: dict[str | None, list[Outgoing]] = {}
    for job in pushed.outgoing:
        by_place.setdefault(job.queue if job.score is None else None, []).append(job)
    for jobs in by_place.values():
        jids, raws = [job.jid for job in jobs], [job.payload for job in jobs]
        outgoing.tell_pushed(jobs[0].queue, jids, raws, is_scheduled=jobs[0].score is not None)


def effects_of(pushed: PushSlice) -> list[Effect]:
    """What the script writes."""
    commands = [*pushed.effects, *push_commands(pushed.outgoing)]
    return [*commands] if pushed.once is None else [Once(*pushed.once, tuple(commands))]
