"""What live processes publish about themselves, for the detection of the Ruby side's release."""

from collections.abc import Sequence

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys

IDENTITIES = ("SMEMBERS", keys.PROCESSES)

# Releases differ by deployment, not by process: so many tell enough.
_AT_MOST = 200


def info_commands(identities: Sequence[bytes]) -> list[tuple[object, ...]]:
    """The commands that ask for the `info` of each process."""
    return [("HGET", identity, "info") for identity in identities[:_AT_MOST]]


def infos(pool: Pool) -> list[bytes]:
    """
    The `info` of the processes that are registered; the dead ones among them have none.

    Raises:
        RedisError: Redis did not answer, or does not let this user ask.
    """
    identities = sorted(pool.command(*IDENTITIES))
    replies = pool.batch(info_commands(identities)) if identities else []
    return [raw for raw in replies if raw is not None]
