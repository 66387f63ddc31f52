"""
The server's product, version and mode, what it does when its memory is full, and how it is doing.

INFO has all of it; HELLO and CONFIG have parts of it. Each of them may be renamed or forbidden for this user; whatever
cannot be found out stays None.
"""

import re
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool

# The first release with LMOVE and BLMOVE, with which a job is in one of two lists at any time.
OLDEST_REDIS = (6, 2)

# Error codes which mean that the server will not answer anything for this user.
_NOT_LET_IN = frozenset({"NOAUTH", "WRONGPASS"})


class ServerInfo(NamedTuple):
    """
    What is known about a server.

    Args:
        product: `Redis`, `Valkey` or `Dragonfly`; None if the server did not say.
        version: The product's version.
        redis_version: The Redis version that it is compatible with, which decides what it can do.
        mode: `standalone`, `cluster` or `sentinel`.
        maxmemory_policy: `noeviction`, or the rule by which the server evicts keys; None if the server does not say.
        is_replica: True for a replica, as far as the server says.
        uptime_seconds: The time since it started.
        connections: The number of clients that are connected.
        used_bytes: The memory that it uses for data.
        peak_bytes: The most that it has used since it started.
        max_bytes: The most that it may use (`maxmemory`); 0 for no limit.
    """

    product: str | None = None
    version: str | None = None
    redis_version: tuple[int, ...] | None = None
    mode: str | None = None
    maxmemory_policy: str | None = None
    is_replica: bool = False
    uptime_seconds: int | None = None
    connections: int | None = None
    used_bytes: int | None = None
    peak_bytes: int | None = None
    max_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.product or 'Redis'} {self.version or 'of an unknown version'}"


def read(pool: Pool) -> ServerInfo:
    """
    Ask the server.

    Raises:
        RedisReplyError: It does not let this user in, or does not have the URL's database.
        RedisError: It cannot be reached. Refused questions do not raise.
    """
    pool.run(Link.connect)
    facts = _info(pool) or _hello(pool)
    if "maxmemory_policy" not in facts:
        facts.update(_config(pool))
    return describe(facts)


def describe(facts: dict[str, str]) -> ServerInfo:
    """
    Interpret the lines of INFO.

    Valkey and Dragonfly report their own version in addition to the `redis_version` that they are compatible with.
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
        # Redis Enterprise has an empty one. Source: Sidekiq 8.1.7, cli.rb.
        maxmemory_policy=facts.get("maxmemory_policy") or None,
        is_replica=facts.get("role") in ("slave", "replica"),
        uptime_seconds=_number(facts.get("uptime_in_seconds")),
        connections=_number(facts.get("connected_clients")),
        used_bytes=_number(facts.get("used_memory")),
        peak_bytes=_number(facts.get("used_memory_peak")),
        max_bytes=_number(facts.get("maxmemory")),
    )


def unknown_script_commands(pool: Pool) -> list[str]:
    """
    Those of EVAL and EVALSHA that the server does not know, because its configuration renames them.

    Raises:
        RedisError: It cannot be reached.
    """
    calls = {"EVAL": ("return 1", 0), "EVALSHA": ("0" * 40, 0)}
    replies = pool.run(lambda link: link.batch([(name, *words) for name, words in calls.items()]))
    return [
        name
        for name, reply in zip(calls, replies, strict=True)
        if isinstance(reply, RedisReplyError) and "unknown command" in str(reply)
    ]


def lines_of(info: bytes) -> dict[str, str]:
    """The lines of INFO."""
    lines = [line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    return {name: value.strip() for name, colon, value in lines if colon}


def _info(pool: Pool) -> dict[str, str]:
    text = _ask(pool, "INFO")
    return lines_of(text) if isinstance(text, bytes) else {}


def _hello(pool: Pool) -> dict[str, str]:
    facts = _pairs(_ask(pool, "HELLO"))
    version, server = facts.get("version"), facts.get("server")
    if version is None:
        return {}
    # Valkey replies `valkey` and its own version here; every Valkey has the commands of Redis 7.2.
    is_valkey = server == "valkey"
    versions = {"valkey_version": version, "redis_version": "7.2.4"} if is_valkey else {"redis_version": version}
    return {**versions, "redis_mode": facts.get("mode", ""), "role": facts.get("role", "")}


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
    """A flat list of names and values as a dict, without values that are not text."""
    if not isinstance(reply, list):
        return {}
    named = zip(reply[::2], reply[1::2], strict=False)
    return {name.decode(): value.decode() for name, value in named if isinstance(value, bytes)}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,19}", text, re.ASCII) else None


def _numbers(version: str | None) -> tuple[int, ...] | None:
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None
