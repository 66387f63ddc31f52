"""Everything that a Redis stores, to compare before and after."""

import redis


def all_keys(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Every key, as Redis would dump it."""
    return {key: client.dump(key) for key in client.keys("*")}
