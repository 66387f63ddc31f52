"""
Payload keys of extensions, as published by the programs that have loaded them. A worker that has not loaded an
extension leaves its jobs alone.
"""

from collections.abc import Mapping

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import flat, texts
from sidekiq_py.wire import keys


def exchange(pool: Pool, own: Mapping[str, str]) -> dict[str, str]:
    """
    Publish the keys of this process's extensions, and read those of all processes.

    Args:
        own: Maps each key to what is left undone if a job with that key runs without its extension.

    Raises:
        RedisError: As `Pool.command`.
    """
    announced = texts(pool.command("HGETALL", keys.EXTENSION_KEYS))
    if own.items() <= announced.items():
        return announced
    pool.command("HSET", keys.EXTENSION_KEYS, *flat(own))
    return {**announced, **own}
