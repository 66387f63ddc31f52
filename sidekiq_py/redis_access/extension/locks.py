"""
Locks that are taken along with a push, each for a time at most.

A lock is a string: the text of who has it, such as a job's id. It is released by whoever finds that text there
(`in_flight.Held`), so nobody releases what is another's by now.
"""

from collections.abc import Sequence

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.in_flight import Held

__all__ = ("push", "release", "released", "renewed", "taken")

PUSH_LOCKED = Script("push_locked")


def push(pool: Pool, key: str, text: str, milliseconds: int, commands: Sequence[Command]) -> str:
    """
    Take a lock and run *commands*, in one atomic step; neither where somebody has it.

    Returns:
        The text of who has it now: *text*, or another's.

    Raises:
        RedisConnectionError: Nothing was done.
        ReplyLostError: Nobody knows whether it was done.
        RedisReplyError: Redis refused it; the lock is as it was.
    """
    names = [key]
    arguments: list[object] = [text, milliseconds]
    for verb, name, *rest in commands:
        if name not in names:
            names.append(name)
        arguments += [2 + len(rest), verb, names.index(name) + 1, *rest]
    holder: bytes = pool.run(lambda link: PUSH_LOCKED.run(link, names, arguments), idempotent=False)
    return holder.decode(errors="replace")


def taken(key: str, text: str, milliseconds: int, commands: Sequence[Command]) -> list[Command]:
    """The same as commands of a turn (`turns.take`), which tells nobody whether the lock was free."""
    return [("LOCK", key, text, len(commands), milliseconds), *commands]


def released(key: str, text: str) -> Held:
    """What a job's end writes to release its lock."""
    return Held(key, text, (("DEL", key),))


def renewed(key: str, text: str, milliseconds: int) -> Held:
    """What a job's end writes to keep its lock for as long from now on."""
    return Held(key, text, (("SET", key, text, "PX", milliseconds),))


def release(pool: Pool, key: str, text: str) -> None:
    """
    Release a lock now, if *text* has it.

    Raises:
        RedisError: As `Pool.run` does.
    """
    pool.run(lambda link: in_flight.write(link, [released(key, text)]))
