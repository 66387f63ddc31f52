"""
Turns: things that are due at times, of which any number of processes keep count, and each of which is done once.

A hash holds a value for each of them, such as the time of the last turn. Who takes a turn moves the value on from the
one that was read, and what the turn calls for is written in the same step: of those who read the same value, one wins.
"""

from collections.abc import Sequence

from sidekiq_celery._send.locks import IS_LOCKED
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Effect, Pool, Verb, verbs, write

__all__ = ("TurnKeys", "add", "hold", "read", "read_one", "release", "remove", "start", "take")

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


class TurnKeys:
    """
    Where turns are kept.

    Args:
        key: Of a hash, field to value. Those that are held back are in the set `<key>:held`, what was added at run time
            in the hash `<key>:added`.
    """

    __slots__ = ("added", "held", "turns")

    def __init__(self, key: str) -> None:
        self.turns = key
        self.held = f"{key}:held"
        self.added = f"{key}:added"


def take(pool: Pool, keys: TurnKeys, field: str, seen: bytes, value: bytes, effects: Sequence[Effect]) -> bool:
    """
    Take a turn. Repeated after a lost reply: the second time it does nothing.

    Args:
        seen: The value that was read; empty for none.
        value: What it becomes.
        effects: What is written along with it. Where a lock that they take is somebody's, the turn alone is taken; so
            it is where Redis refuses them, or they would be tried without end.

    Returns:
        Whether it was taken here; False also where an earlier try's reply was lost.

    Raises:
        RedisError: As `Pool.run` does.
    """
    turn = (_TURN.name, keys.turns, field, seen, value)
    try:
        pool.run(lambda link: write(link, [turn, *effects]))
    except RedisReplyError as refusal:
        if refusal.code == _IS_ANOTHER:
            return False
        if refusal.is_about_server or not effects:
            raise
        is_taken = take(pool, keys, field, seen, value, [])
        if refusal.code != IS_LOCKED:
            raise
        return is_taken
    return True


def read(pool: Pool, keys: TurnKeys) -> tuple[dict[str, bytes], set[str], dict[str, bytes]]:
    """The values of all turns, those that are held back, and what was added at run time."""
    values, held, added = pool.batch([("HGETALL", keys.turns), ("SMEMBERS", keys.held), ("HGETALL", keys.added)])
    return _texts(values), {name.decode() for name in held}, _texts(added)


def read_one(pool: Pool, keys: TurnKeys, field: str) -> tuple[bytes, bool]:
    """The value of a turn, empty for none; and whether it is held back."""
    value, held = pool.batch([("HGET", keys.turns, field), ("SISMEMBER", keys.held, field)])
    return value or b"", bool(held)


def start(pool: Pool, keys: TurnKeys, values: dict[str, bytes]) -> None:
    """Give turns that have no value their first one."""
    pool.batch([("HSETNX", keys.turns, field, value) for field, value in values.items()])


def remove(pool: Pool, keys: TurnKeys, fields: Sequence[str]) -> None:
    """Forget turns."""
    pool.batch([("HDEL", keys.turns, *fields), ("SREM", keys.held, *fields), ("HDEL", keys.added, *fields)])


def hold(pool: Pool, keys: TurnKeys, field: str) -> None:
    """Have nobody take a turn until `release`."""
    pool.command("SADD", keys.held, field)


def release(pool: Pool, keys: TurnKeys, field: str, value: bytes) -> None:
    """Let turns be taken again, the next one as if *value* had been that of the last."""
    pool.batch([("MULTI",), ("HSET", keys.turns, field, value), ("SREM", keys.held, field), ("EXEC",)])


def add(pool: Pool, keys: TurnKeys, field: str, text: bytes, value: bytes) -> None:
    """Add something at run time: its description, and its first value."""
    pool.batch([("MULTI",), ("HSET", keys.added, field, text), ("HSETNX", keys.turns, field, value), ("EXEC",)])


def _texts(reply: Sequence[bytes] | dict[bytes, bytes]) -> dict[str, bytes]:
    if isinstance(reply, dict):
        return {name.decode(): value for name, value in reply.items()}
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
