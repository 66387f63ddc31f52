"""
Which classes each of our processes can run, as published by the process itself.

Ruby's processes do not publish this. A key expires unless the process keeps it alive.
"""

from collections.abc import Sequence

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads_or_none

TTL_SECONDS = 180


def renew(pool: Pool, identity: str) -> bool:
    """Keep the published classes for another `TTL_SECONDS`. Returns False if there are none (any more)."""
    return bool(pool.command("EXPIRE", keys.declared(identity), TTL_SECONDS))


def publish(pool: Pool, identity: str, classes: Sequence[str]) -> None:
    """Publish the classes that the process can run, for `TTL_SECONDS`."""
    pool.command("SET", keys.declared(identity), dumps(list(classes), FloatText.RUBY), "EX", TTL_SECONDS)


def read(pool: Pool, identities: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """The classes that each process can run; None for one that has not published them, or whose key is foreign."""
    replies = pool.well_typed([("GET", keys.declared(identity)) for identity in identities])
    return {identity: _classes(raw) for identity, raw in zip(identities, replies, strict=True)}


def _classes(raw: bytes | None) -> frozenset[str] | None:
    names = loads_or_none(raw or b"")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else None
