"""The progress of iterable jobs: the hash `it-<jid>` of each."""

from collections.abc import Sequence

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs
from sidekiq_py.wire import keys


def states(pool: Pool, jids: Sequence[str]) -> list[dict[bytes, bytes]]:
    """Each job's fields `ex`, `c`, `rt`, `cancelled`; empty if it has no state. Source: Sidekiq 8.1.7, api.rb."""
    replies = pool.batch([("HGETALL", keys.iteration(jid)) for jid in jids])
    return [dict(pairs(flat)) for flat in replies]
