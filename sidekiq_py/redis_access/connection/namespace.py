"""
Keys under a namespace, as the redis-namespace gem writes them for Sidekiq up to 6.5: `myapp:queue:default`.

All other code uses Sidekiq's key names. Before a command is sent, the namespace is added to those of its words that are
keys; it is removed from the few replies that contain keys. Values never have it. A command that is not in the table
below is refused: sent unchanged, it would touch other programs' keys on the same Redis.

Source: redis-namespace 1.9.0, namespace.rb, `NAMESPACED_COMMANDS`.
"""

import re
from collections.abc import Sequence
from typing import Any

_NONE = slice(0, 0)
_FIRST = slice(1, 2)
_FIRST_TWO = slice(1, 3)
_ALL = slice(1, None)
_ALL_BUT_LAST = slice(1, -1)
_EVERY_OTHER = slice(1, None, 2)

# Which words of a command are keys. EVAL, EVALSHA and SCAN have their own rules.
_KEYS: dict[str, slice] = {
    **dict.fromkeys(
        ("CLIENT", "CONFIG", "EXEC", "HELLO", "INFO", "MONITOR", "MULTI", "PING", "SCRIPT", "TIME", "UNWATCH"),
        _NONE,
    ),
    **dict.fromkeys(
        (
            *("BITFIELD", "BITFIELD_RO", "DECRBY", "EXPIRE", "GET", "GETDEL", "GETRANGE"),
            *("INCR", "INCRBY", "PERSIST", "PEXPIRE"),
            *("PTTL", "SET", "STRLEN", "TTL", "TYPE"),
            *("HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HSCAN", "HSET", "HSETNX"),
            *("HVALS",),
            *("LINDEX", "LLEN", "LPOP", "LPOS", "LPUSH", "LRANGE", "LREM", "LTRIM", "RPOP", "RPUSH"),
            *("SADD", "SCARD", "SISMEMBER", "SMEMBERS", "SMISMEMBER", "SREM", "SSCAN"),
            *("ZADD", "ZCARD", "ZCOUNT", "ZINCRBY", "ZRANGE", "ZRANGEBYSCORE", "ZRANK", "ZREM", "ZREMRANGEBYRANK"),
            "ZMSCORE",
            *("ZREMRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYSCORE", "ZREVRANK", "ZSCAN", "ZSCORE"),
            *("XADD", "XLEN", "XREVRANGE"),
        ),
        _FIRST,
    ),
    **dict.fromkeys(("BLMOVE", "LMOVE", "RENAMENX"), _FIRST_TWO),
    **dict.fromkeys(("DEL", "EXISTS", "MGET", "SUBSCRIBE", "UNLINK", "WATCH"), _ALL),
    "BRPOP": _ALL_BUT_LAST,
    "MSET": _EVERY_OTHER,
}


class Namespace:
    """
    One namespace.

    Args:
        name: The namespace without the colon that follows it in a key.
    """

    __slots__ = ("_prefix", "_prefix_bytes")

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}:"
        self._prefix_bytes = self._prefix.encode()

    def command(self, words: Sequence[Any]) -> Sequence[Any]:
        """
        The command with the namespace before each of its keys.

        Raises:
            NotImplementedError: The table does not say which of its words are keys.
        """
        name = words[0]
        if name == "SCAN":
            return self._scan(words)
        where = slice(3, 3 + int(words[2])) if name in ("EVALSHA", "EVAL") else _KEYS.get(name)
        if where is None:
            raise NotImplementedError(
                f"{name} cannot be sent to a Redis with a namespace: redis_access/connection/namespace.py does not say "
                "which of its words are keys; add it to the table there"
            )
        spelled = list(words)
        spelled[where] = [self._key(word) for word in words[where]]
        return spelled

    def reply(self, words: Sequence[Any], reply: Any) -> Any:
        """The reply to a command, with the namespace removed from its keys; *words* are those without the namespace."""
        if reply is None or words[0] not in ("BRPOP", "SCAN"):
            return reply
        if words[0] == "BRPOP":
            return [self._bare(reply[0]), *reply[1:]]
        return [reply[0], [self._bare(key) for key in reply[1]]]

    def _key(self, key: str | bytes) -> str | bytes:
        return self._prefix_bytes + key if isinstance(key, bytes) else self._prefix + key

    def _bare(self, key: bytes) -> bytes:
        return key.removeprefix(self._prefix_bytes)

    def _scan(self, words: Sequence[Any]) -> Sequence[Any]:
        """SCAN only finds keys in the namespace, with or without a MATCH."""
        plain = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix)
        spelled = list(words)
        if "MATCH" not in words:
            return [*spelled, "MATCH", f"{plain}*"]
        place = spelled.index("MATCH") + 1
        pattern = spelled[place]
        spelled[place] = plain + (pattern.decode(errors="surrogateescape") if isinstance(pattern, bytes) else pattern)
        return spelled
