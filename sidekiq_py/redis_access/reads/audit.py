"""The stream of what people did: who, what, to what, when."""

from collections.abc import Mapping

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import flat, texts
from sidekiq_py.wire import keys

Entry = tuple[str, dict[str, str]]
"""The id from Redis, which contains the time in milliseconds, and the fields."""


def add(pool: Pool, fields: Mapping[str, str], *, most: int) -> None:
    """Add an entry, and trim the stream to about *most* entries."""
    pool.command("XADD", keys.AUDIT, "MAXLEN", "~", most, "*", *flat(fields), idempotent=False)


def page(pool: Pool, count: int, before: str | None) -> list[Entry]:
    """The latest *count* entries, or those before an id."""
    last = "+" if before is None else f"({before}"
    rows = pool.command("XREVRANGE", keys.AUDIT, last, "-", "COUNT", count)
    return [(entry_id.decode(), texts(entry)) for entry_id, entry in rows]
