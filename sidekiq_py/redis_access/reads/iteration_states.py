"""How far iterable jobs have come: the hash `it-<jid>` of each."""

from collections.abc import Sequence

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys


def states(pool: Pool, jids: Sequence[str]) -> list[dict[bytes, bytes]]:
    """The fields of each, empty where there is none: `ex`, `c`, `rt`, `cancelled`. Source: Sidekiq 8.1.7, api.rb."""
    replies = pool.batch([("HGETALL", keys.iteration(jid)) for jid in jids]) if jids else []
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies]
