"""
Locks of unique tasks: the script that pushes a task takes its lock, and the one that ends it releases it. Each lock
also expires after some time.

A lock is a string: the id of the task that holds it. It is only released if it still contains that id, so a lock that
another task holds by now is never released.
"""

from collections.abc import Sequence

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Effect, Held, Pool, Verb, verbs, write
from sidekiq_py.pushing import advised, program

IS_LOCKED = "SIDEKIQCELERYLOCKED"
"""The error code of a script that could not take a lock because it is held; the holder's text follows it."""

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
    Take a lock and write *effects*, in one atomic step. If the lock is held, do neither.

    Returns:
        The text of the current holder: *text*, or another one.

    Raises:
        RedisConnectionError: Nothing was done.
        ReplyLostError: It is unknown whether it was done.
        RedisReplyError: Redis refused it; the lock is unchanged.
    """
    wanted = taken(key, text, milliseconds, effects)
    try:
        pool.run(lambda link: write(link, wanted, pushes=True), idempotent=False)
    except RedisReplyError as refusal:
        if refusal.code != IS_LOCKED:
            raise program.extensions.explained(str(refusal)) or advised(refusal) from refusal
        return str(refusal).partition(" ")[2]
    return text


def taken(key: str, text: str, milliseconds: int, effects: Sequence[Effect]) -> list[Effect]:
    """The effects that also take the lock, for another script; the script fails if the lock is held."""
    # Last, because a command that Redis refuses must not leave a lock behind.
    return [*effects, (_LOCK.name, key, text, milliseconds)]


def released(key: str, text: str) -> Held:
    """The effect with which a job's end releases its lock."""
    return Held(key, text, (("DEL", key),))


def renewed(key: str, text: str, milliseconds: int) -> Held:
    """The effect with which a job's end renews its lock for the given time from now on."""
    return Held(key, text, (("SET", key, text, "PX", milliseconds),))
