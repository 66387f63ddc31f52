"""
Locks of unique tasks: taken by the script that pushes, released by the one that ends, each for a time at most.

A lock is a string: the id of the task that has it. It is released by whoever finds that text there, so nobody releases
what is another's by now.
"""

from collections.abc import Sequence

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Effect, Held, Pool, Verb, verbs, write
from sidekiq_py.pushing import program

__all__ = ("IS_LOCKED", "push", "released", "renewed", "taken")

IS_LOCKED = "SIDEKIQCELERYLOCKED"
"""The code of the refusal of a script that was to take a lock which somebody has; his text stands behind it."""

_LOCK = Verb(
    "CELERY_LOCK",
    """{
  -- Words: <text> <milliseconds>
  look = function(key)
    local holder = redis.call('GET', key)
    if holder then return 'SIDEKIQCELERYLOCKED ' .. holder end
  end,
  run = function(key, words) return redis.call('SET', key, words[1], 'PX', words[2]) end,
}""",
)
verbs.add([_LOCK])


def push(pool: Pool, key: str, text: str, milliseconds: int, effects: Sequence[Effect]) -> str:
    """
    Take a lock and write *effects*, in one atomic step; neither where somebody has it.

    Returns:
        The text of who has it now: *text*, or another's.

    Raises:
        RedisConnectionError: Nothing was done.
        ReplyLostError: Nobody knows whether it was done.
        RedisReplyError: Redis refused it; the lock is as it was.
    """
    wanted = taken(key, text, milliseconds, effects)
    try:
        pool.run(lambda link: write(link, wanted), idempotent=False)
    except RedisReplyError as refusal:
        if refusal.code != IS_LOCKED:
            raise program.extensions.explained(str(refusal)) or refusal from refusal
        return str(refusal).partition(" ")[2]
    return text


def taken(key: str, text: str, milliseconds: int, effects: Sequence[Effect]) -> list[Effect]:
    """The same for another script, which is refused where somebody has the lock."""
    # Last, as a command that Redis refuses must leave no lock behind.
    return [*effects, (_LOCK.name, key, text, milliseconds)]


def released(key: str, text: str) -> Held:
    """What a job's end writes to release its lock."""
    return Held(key, text, (("DEL", key),))


def renewed(key: str, text: str, milliseconds: int) -> Held:
    """What a job's end writes to keep its lock for as long from now on."""
    return Held(key, text, (("SET", key, text, "PX", milliseconds),))
