"""The profiles of jobs that Sidekiq 8 keeps for a day."""

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.transaction import transact

_PROFILES = "profiles"
FIELDS = ("started_at", "jid", "type", "token", "size", "elapsed")


def count(pool: Pool) -> int:
    """How many profiles there are, including expired ones."""
    return int(pool.command("ZCARD", _PROFILES))


def live_keys(pool: Pool, now: float) -> list[bytes]:
    """The keys of the profiles not expired by *now* (epoch s), latest first. Source: Sidekiq 8.1.7, `ProfileSet`."""
    _, found = transact(pool, [("ZREMRANGEBYSCORE", _PROFILES, "-inf", now), ("ZREVRANGE", _PROFILES, 0, -1)])
    names: list[bytes] = found
    return names


def summaries(pool: Pool, names: list[bytes]) -> list[list[bytes | None]]:
    """The `FIELDS` of each profile."""
    # A key of the wrong type must not hide the other profiles.
    return [row or [None] * len(FIELDS) for row in pool.well_typed([("HMGET", name, *FIELDS) for name in names])]


def data(pool: Pool, name: str) -> bytes | None:
    """The profile itself, gzipped."""
    content: bytes | None = pool.command("HGET", name, "data")
    return content
