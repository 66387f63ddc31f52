"""MULTI and EXEC in one round trip."""

from collections.abc import Sequence
from typing import Any

from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import of_transaction


def transact(pool: Pool, commands: Sequence[Command]) -> list[Any]:
    """
    Run commands in a transaction. They may be repeated after a lost reply.

    Returns:
        Their replies.

    Raises:
        RedisReplyError: One of them failed; those before and after it were executed.
    """
    return of_transaction(pool.batch([("MULTI",), *commands, ("EXEC",)])[-1])
