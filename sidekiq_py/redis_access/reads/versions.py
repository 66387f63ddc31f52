"""What live processes publish about themselves, for the detection of the Ruby side's release."""

import json
from collections.abc import Collection, Sequence

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from sidekiq_py.wire.process_info import parse_info

IDENTITIES = ("SMEMBERS", keys.PROCESSES)

# Releases differ by deployment, not by process: so many tell enough.
_AT_MOST = 200
# A process looks again after a minute; after five seconds at first where it has found nobody.
_SHARED_SECONDS = 30
_SHARED_SECONDS_WITHOUT_RUBY = 4


def info_commands(identities: Sequence[bytes]) -> list[tuple[object, ...]]:
    """The commands that ask for the `info` of each process."""
    return [("HGET", identity, "info") for identity in identities[:_AT_MOST]]


def infos(pool: Pool, but: Collection[bytes] = ()) -> list[bytes]:
    """
    The `info` of the processes that are registered; the dead ones among them have none.

    Args:
        but: Processes that are not asked about.

    Raises:
        RedisError: Redis did not answer, or does not let this user ask.
    """
    identities = sorted(set(pool.command(*IDENTITIES)).difference(but))
    replies = pool.batch(info_commands(identities)) if identities else []
    return [raw for raw in replies if raw is not None]


def shared_infos(pool: Pool) -> list[bytes]:
    """
    As `infos`, for a worker: the Ruby processes that one of all workers has found lately, one of each release.

    If each looked for itself, a fleet without Ruby would cost Redis the square of its size. Workers of ours are passed
    over, of which there may be more than anybody asks about.

    Raises:
        RedisError: As `infos`.
    """
    try:
        known: bytes | None = pool.command("GET", keys.RUBY_INFOS)
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        # A key of another type, or one that this user may not read.
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
    # Whatever bytes they are.
    pool.command("SET", keys.RUBY_INFOS, json.dumps([raw.decode("latin-1") for raw in found]), "EX", seconds)
    return found


def _unpacked(shared: bytes) -> list[bytes] | None:
    """None for what no worker of ours has written."""
    try:
        texts = json.loads(shared)
        return [text.encode("latin-1") for text in texts] if type(texts) is list else None
    except (ValueError, AttributeError):
        return None
