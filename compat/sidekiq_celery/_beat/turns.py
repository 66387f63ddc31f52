"""
Turns: recurring things that any number of processes track, and that only one of them does each time.

The hash `<key>` holds a value for each, such as the time of the last turn. A process takes a turn by changing the value
from the one it has read, and writes the turn's effects in the same step. Of several processes that read the same value,
one wins. The set `<key>:held` has the turns that are held back, and the hash `<key>:added` those that were added at run
time.
"""

from collections.abc import Sequence

from sidekiq_celery._send.locks import IS_LOCKED
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Effect, Pool, Verb, verbs, write

_IS_ANOTHER = "SIDEKIQCELERYTURN"

_TURN = Verb(
    "CELERY_TURN",
    """{
  -- Words: <field> <the value that was read; empty for none> <the new one>
  look = function(key, words)
    if (redis.call('HGET', key, words[1]) or '') ~= words[2] then return 'SIDEKIQCELERYTURN it has another value' end
    if redis.call('SISMEMBER', key .. ':held', words[1]) == 1 then return 'SIDEKIQCELERYTURN it is held back' end
  end,
  run = function(key, words) return redis.call('HSET', key, words[1], words[3]) end,
}""",
)
verbs.add([_TURN])


class EffectsRefusedError(RedisReplyError):
    """The turn was taken, but Redis refused its effects."""


def take(pool: Pool, key: str, field: str, seen: bytes, value: bytes, effects: Sequence[Effect]) -> bool:
    """
    Take a turn. If the reply is lost, this is repeated, and the second attempt does nothing.

    Args:
        seen: The value that was read; empty for none.
        value: The new value.
        effects: Written together with it. If they need a lock that is held, only the turn is taken. The same happens if
            Redis refuses them, because otherwise they would be tried forever.

    Returns:
        True if the turn was taken here; False also if the reply to an earlier attempt was lost.

    Raises:
        EffectsRefusedError: Only the turn was taken.
        RedisError: As `Pool.run` does; the turn was not taken.
    """
    turn = (_TURN.name, key, field, seen, value)
    try:
        pool.run(lambda link: write(link, [turn, *effects]))
    except RedisReplyError as refusal:
        if refusal.code == _IS_ANOTHER:
            return False
        if refusal.is_about_server or not effects:
            raise
        is_taken = take(pool, key, field, seen, value, [])
        if refusal.code != IS_LOCKED:
            raise EffectsRefusedError(str(refusal)) from None
        return is_taken
    return True


def read(pool: Pool, key: str) -> tuple[dict[str, bytes], set[str], dict[str, bytes]]:
    """The values of all turns, the turns that are held back, and those that were added at run time."""
    values, held, added = pool.batch([("HGETALL", key), ("SMEMBERS", f"{key}:held"), ("HGETALL", f"{key}:added")])
    return _texts(values), {name.decode(errors="surrogateescape") for name in held}, _texts(added)


def read_one(pool: Pool, key: str, field: str) -> tuple[bytes, bool]:
    """The value of a turn (empty for none), and whether it is held back."""
    value, held = pool.batch([("HGET", key, field), ("SISMEMBER", f"{key}:held", field)])
    return value or b"", bool(held)


def start(pool: Pool, key: str, values: dict[str, bytes]) -> None:
    """Set the first value of turns that have none."""
    pool.batch([("HSETNX", key, field, value) for field, value in values.items()])


def remove(pool: Pool, key: str, fields: Sequence[str]) -> None:
    """Remove turns."""
    pool.batch([("HDEL", key, *fields), ("SREM", f"{key}:held", *fields), ("HDEL", f"{key}:added", *fields)])


def hold(pool: Pool, key: str, field: str) -> None:
    """Hold back a turn: no process can take it until `release`."""
    pool.command("SADD", f"{key}:held", field)


def release(pool: Pool, key: str, field: str, value: bytes) -> None:
    """Allow a turn to be taken again, with *value* as the value of the last one."""
    pool.batch([("MULTI",), ("HSET", key, field, value), ("SREM", f"{key}:held", field), ("EXEC",)])


def add(pool: Pool, key: str, field: str, text: bytes, value: bytes) -> None:
    """Add a turn at run time: its description, and its first value."""
    pool.batch([("MULTI",), ("HSET", f"{key}:added", field, text), ("HSETNX", key, field, value), ("EXEC",)])


def _texts(reply: Sequence[bytes]) -> dict[str, bytes]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    # Any program may write to these hashes, and a name that is not UTF-8 must not stop the other entries.
    return {name.decode(errors="surrogateescape"): value for name, value in pairs}
