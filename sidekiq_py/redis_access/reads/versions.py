"""Reads what live processes publish about themselves, to detect the release on the Ruby side."""

import json
from collections.abc import Collection, Sequence

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from sidekiq_py.wire.process_info import parse_info

IDENTITIES = ("SMEMBERS", keys.PROCESSES)

# Releases differ between deployments rather than processes, so this many processes are enough.
_AT_MOST = 200
# A process checks again after a minute, or at first after five seconds if it has found none.
_SHARED_SECONDS = 30
_SHARED_SECONDS_WITHOUT_RUBY = 4


def info_commands(identities: Sequence[bytes]) -> list[tuple[object, ...]]:
    """The commands that read each process's `info`."""
    return [("HGET", identity, "info") for identity in identities[:_AT_MOST]]


def infos(pool: Pool, but: Collection[bytes] = ()) -> list[bytes]:
    """
    The `info` of the registered processes. Those that are dead do not have any.

    Args:
        but: Processes to skip.

    Raises:
        RedisError: Redis did not answer, or this user may not read them.
    """
    identities = sorted(set(pool.command(*IDENTITIES)).difference(but))
    replies = pool.batch(info_commands(identities))
    return [raw for raw in replies if raw is not None]


def shared_infos(pool: Pool) -> list[bytes]:
    """
    Like `infos`, for workers: one Ruby process of each release, as found lately by any of the workers.

    If every worker searched by itself, a fleet without Ruby would cost Redis the square of its size. Our own workers
    are skipped, because there may be more of them than the number of processes that are read.

    Raises:
        RedisError: As `infos`.
    """
    try:
        known: bytes | None = pool.command("GET", keys.RUBY_INFOS)
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        # The key has the wrong type, or this user may not read it.
        return infos(pool)
    if known is not None and (shared := _unpacked(known)) is not None:
        return shared
    ours = {owner.rpartition(b":")[0] for owner in pool.command("HKEYS", keys.OWNERS)}
    by_version: dict[object, bytes] = {}
    for raw in infos(pool, but=ours):
        info = parse_info(raw)
        if info is not None and not info.is_python:
            by_version.setdefault(info.version, raw)
    found = [*by_version.values()]
    seconds = _SHARED_SECONDS if found else _SHARED_SECONDS_WITHOUT_RUBY
    # Latin-1 keeps any bytes.
    pool.command("SET", keys.RUBY_INFOS, json.dumps([raw.decode("latin-1") for raw in found]), "EX", seconds)
    return found


def _unpacked(shared: bytes) -> list[bytes] | None:
    """The shared infos. Returns None if none of our workers has written them."""
    try:
        texts = json.loads(shared)
        return [text.encode("latin-1") for text in texts] if type(texts) is list else None
    except (ValueError, AttributeError, RecursionError):
        return None
