"""
Payload keys of extensions, as the programs that have loaded them say: a worker that has not leaves such jobs alone.
"""

from collections.abc import Mapping

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys


def exchange(pool: Pool, own: Mapping[str, str]) -> dict[str, str]:
    """
    Say which keys this process's extensions own, and read those of all.

    Args:
        own: Of each key, what is left undone where a job that bears it runs without its extension.

    Raises:
        RedisError: As `Pool.batch`.
    """
    told = [("HSET", keys.EXTENSION_KEYS, *(part for pair in own.items() for part in pair))] if own else []
    *_, flat = pool.batch([*told, ("HGETALL", keys.EXTENSION_KEYS)])
    texts = [part.decode(errors="replace") for part in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
