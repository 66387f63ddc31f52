"""
Moves messages between layouts: takes them from the source and writes their new form, in one step.

The same script serves three purposes: to claim a message at the source (from the list into a hash), to write it at the
destination unless a mark shows that it is already there, and to move it directly if both ends are one server.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from sidekiq_py.extension import Command, Pool, Script

_LUA = files("sidekiq_celery.bridge") / "lua"
_MOVE = Script.of_text("move_messages", (_LUA / "move_messages.lua").read_text("utf-8"))
_READ_TAIL = Script.of_text("read_tail", (_LUA / "read_tail.lua").read_text("utf-8"))


class Entry(NamedTuple):
    """
    One message.

    Args:
        condition: `("LREM", list, text)`, `("ZREM", zset, member)`, `("HDEL", hash, field, text)`, the same with a
            zset, `("NEW", mark, seconds)`, `("MARK", mark, seconds)`; empty to write the command in any case.
        command: The command to run if the condition holds, with its key as the second word; empty for nothing.
        counted: The field of the totals to count it in; empty for none.
    """

    condition: Command
    command: Command
    counted: str = ""


def move(
    pool: Pool, entries: Sequence[Entry], *, totals: str | None = None, until_seconds: int = 0
) -> list[bool] | None:
    """
    Run entries in order, in one step.

    If the reply is lost, this is repeated. The conditions of entries that were already done no longer hold then, so
    these count as not done.

    Args:
        totals: A hash that counts what is done.
        until_seconds: The server's time after which nothing is done; 0 for no limit.

    Returns:
        For each entry, whether it was done; None if it was too late.

    Raises:
        RedisError: As `Pool.run` does; nothing was done, unless the connection broke.
    """
    names: dict[str, int] = {}

    def number(key: str) -> int:
        return names.setdefault(key, len(names) + 1)

    arguments: list[Any] = [until_seconds, number(totals) if totals else 0]
    for condition, command, counted in entries:
        arguments += [counted, *_numbered(condition, number), *_numbered(command, number)]

    _, *done = pool.run(lambda link: _MOVE.run(link, list(names), arguments))
    return None if entries and not done else [bool(one) for one in done]


def _numbered(words: Command, number: Any) -> list[Any]:
    if not words:
        return [0]
    verb, key, *rest = words
    if verb == "HDEL" and len(rest) > 2:
        rest[-1] = number(rest[-1])
    return [len(words), verb, number(key), *rest]


def read_tail(
    pool: Pool, key: str, *, behind: int, count: int, most_bytes: int, most_bytes_each: int
) -> list[bytes | int]:
    """
    Read a window of a list, from the tail, without removing anything.

    Args:
        behind: The number of texts at the tail to skip.
        most_bytes: The limit for the whole window, if it has more than one text.
        most_bytes_each: The limit for one text; for a larger one, its length is returned instead.
    """
    arguments = [behind, count, most_bytes, most_bytes_each]
    return pool.run(lambda link: _READ_TAIL.run(link, [key], arguments))


def server_seconds(pool: Pool) -> int:
    """The server's clock, in whole seconds since the epoch."""
    return int(pool.command("TIME")[0])


def is_same_server(one: Pool, other: Pool, probe: str) -> bool:
    """
    Whether two pools use the same database of the same server.

    Args:
        probe: A key that nothing else uses; it is written, and then deleted.
    """
    one.command("SET", probe, 1, "EX", 60)
    is_there: bool = other.command("EXISTS", probe) == 1
    one.command("DEL", probe)
    return is_there
