"""
What kind of server this is: product, version, mode, and what it does when its memory is full.

INFO tells it all, HELLO and CONFIG tell parts of it. Each may be forbidden to this user or renamed away; then what
cannot be known stays None.
"""

import re
from dataclasses import dataclass
from typing import Any

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool

# LMOVE and BLMOVE, by which a job is never in no place at all.
OLDEST_REDIS = (6, 2)

# Of error replies: nothing that this user asks will be answered.
_NOT_LET_IN = frozenset({"NOAUTH", "WRONGPASS"})


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """
    Args:
        product: `Redis`, `Valkey` or `Dragonfly`; None if the server did not say.
        version: Of the product.
        redis_version: The Redis whose commands it has, which decides what it can do.
        mode: `standalone`, `cluster` or `sentinel`.
        maxmemory_policy: `noeviction`, or by which rule it throws keys away.
    """

    product: str | None = None
    version: str | None = None
    redis_version: tuple[int, ...] | None = None
    mode: str | None = None
    maxmemory_policy: str | None = None

    def __str__(self) -> str:
        return f"{self.product or 'Redis'} {self.version or 'of an unknown version'}"


def read(pool: Pool) -> ServerInfo:
    """
    Ask the server.

    Raises:
        RedisReplyError: It does not let this user in, or lacks the URL's database.
        RedisError: It is out of reach. What it refuses to tell raises nothing.
    """
    pool.run(Link.connect)
    facts = _info(pool) or _hello(pool)
    if "maxmemory_policy" not in facts:
        facts.update(_config(pool))
    return describe(facts)


def describe(facts: dict[str, str]) -> ServerInfo:
    """
    What the lines of INFO say.

    Valkey and Dragonfly call themselves by a version of their own beside the `redis_version` that they are compatible
    with.
    """
    compatible = facts.get("redis_version")
    if "dragonfly_version" in facts:
        product, version = "Dragonfly", facts["dragonfly_version"].removeprefix("df-").removeprefix("v")
    elif "valkey_version" in facts:
        product, version = "Valkey", facts["valkey_version"]
    else:
        product, version = "Redis", compatible or ""
    is_cluster = facts.get("cluster_enabled") == "1"
    mode = facts.get("server_mode") or facts.get("redis_mode")
    return ServerInfo(
        product=product if version else None,
        version=version or None,
        redis_version=_numbers(compatible),
        mode="cluster" if is_cluster else mode,
        maxmemory_policy=facts.get("maxmemory_policy"),
    )


def _info(pool: Pool) -> dict[str, str]:
    text = _ask(pool, "INFO")
    if not isinstance(text, bytes):
        return {}
    lines = [line.partition(":") for line in text.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    return {name: value.strip() for name, colon, value in lines if colon}


def _hello(pool: Pool) -> dict[str, str]:
    facts = _pairs(_ask(pool, "HELLO"))
    version, server = facts.get("version"), facts.get("server")
    if version is None:
        return {}
    # Valkey says `valkey` and its own version here; every Valkey has the commands of Redis 7.2.
    is_valkey = server == "valkey"
    versions = {"valkey_version": version, "redis_version": "7.2.4"} if is_valkey else {"redis_version": version}
    return {**versions, "redis_mode": facts.get("mode", "")}


def _config(pool: Pool) -> dict[str, str]:
    policy = _pairs(_ask(pool, "CONFIG", "GET", "maxmemory-policy")).get("maxmemory-policy")
    return {} if policy is None else {"maxmemory_policy": policy}


def _ask(pool: Pool, *command: str) -> Any:
    try:
        return pool.command(*command)
    except RedisReplyError as error:
        if error.code in _NOT_LET_IN:
            raise
        return None


def _pairs(reply: Any) -> dict[str, str]:
    """A flat list of names and values; values that are no text are left out."""
    if not isinstance(reply, list):
        return {}
    named = zip(reply[::2], reply[1::2], strict=False)
    return {name.decode(): value.decode() for name, value in named if isinstance(value, bytes)}


def _numbers(version: str | None) -> tuple[int, ...] | None:
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None
