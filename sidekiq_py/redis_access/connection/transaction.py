"""MULTI and EXEC in one round trip."""

from collections.abc import Sequence
from typing import Any

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import of_transaction
from sidekiq_py.redis_access.connection.scripts import Script

IN_TURN = Script("in_turn")


def transact(pool: Pool, commands: Sequence[Command]) -> list[Any]:
    """
    Run commands, each with one key, in a transaction. They may be repeated after a lost reply.

    Returns:
        Their replies.

    Raises:
        RedisReplyError: One of them failed; those before it were executed, and usually those after it.
    """
    try:
        return of_transaction(pool.batch([("MULTI",), *commands, ("EXEC",)])[-1])
    except RedisReplyError as error:
        if error.code != "OOM":
            raise
    # A full Redis refuses all commands behind MULTI, also those that only read or remove, which are the way out of it.
    names = [command[1] for command in commands]
    words = [word for name, _, *rest in commands for word in (name, len(rest), *rest)]
    replies: list[Any] = pool.run(lambda link: IN_TURN.run(link, names, words))
    return replies
